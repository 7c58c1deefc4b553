"""Where spans go, as `OTEL_*` says it, and one request there."""

from __future__ import annotations

import asyncio
import gzip
import ssl
import sys
import zlib
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Literal, NamedTuple
from urllib.parse import unquote, urlsplit

import aiohttp
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse

from pgoutbox.brokers.http.headers import retry_after
from pgoutbox.message import HEADER_NAME
from pgoutbox.telemetry.quiet import clean

if TYPE_CHECKING:
    from collections.abc import Mapping

TRACES_PATH = "/v1/traces"
DEFAULT_ENDPOINT = "http://localhost:4318"
GRPC_PORT = 4317
TIMEOUT = 2.0
"""Seconds for one request. `OTEL_EXPORTER_OTLP_TIMEOUT` is not read: OpenTelemetry defines it in
milliseconds, and its Python SDK takes it for seconds."""
MAX_ANSWER = 64 * 1024

LATER = (429, 502, 503, 504)
"""The statuses after which OTLP tries again."""
ALL = sys.maxsize
MAX_PAUSE = 60.0
"""Seconds. A collector that asks for more is asked again, since all that waits for it is lost."""

Compression = Literal["none", "gzip", "deflate"]


class Misconfigured(ValueError):  # noqa: N818 - reads better where it is caught
    """A variable has a value with which nothing can be sent."""


class Collector(NamedTuple):
    """An endpoint of OTLP over HTTP."""

    url: str
    headers: Mapping[str, str]
    compression: Compression
    tls: ssl.SSLContext | None

    @property
    def where(self) -> str:
        """Scheme, host and port: what may be logged."""
        parts = urlsplit(self.url)
        return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}"


class Answer(NamedTuple):
    """What became of a request."""

    problem: str = ""
    again: bool = False
    """It may be repeated."""
    rejected: int = 0
    """So many spans, as the collector says; `ALL` where it wants none of them."""
    pause: float = 0.0
    """Seconds for which the collector asks to be left alone."""


def collector(environ: Mapping[str, str]) -> Collector:
    """The one that the environment names, or a collector on this host.

    Raises `Misconfigured`, without the value, which may hold a password.
    """
    name = "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"
    url = environ.get(name, "").strip()
    if not url:
        name = "OTEL_EXPORTER_OTLP_ENDPOINT"
        base = environ.get(name, "").strip() or DEFAULT_ENDPOINT
        url = base.rstrip("/") + TRACES_PATH
    if not _is_web(url):
        raise Misconfigured(
            f"{name} is not an http:// or https:// URL; one looks like {DEFAULT_ENDPOINT}"
        )
    return Collector(url, _headers(environ), _compression(environ), _tls(environ, url))


def _is_web(url: str) -> bool:
    try:
        parts = urlsplit(url)
        # A port that is none is found when it is asked for.
        return parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False


def either(environ: Mapping[str, str], name: str) -> str:
    """The variable for traces, or the one for all signals."""
    ours = environ.get(f"OTEL_EXPORTER_OTLP_TRACES_{name}", "").strip()
    return ours or environ.get(f"OTEL_EXPORTER_OTLP_{name}", "").strip()


def _headers(environ: Mapping[str, str]) -> dict[str, str]:
    headers = {"Content-Type": "application/x-protobuf"}
    for pair in either(environ, "HEADERS").split(","):
        name, equals, value = pair.partition("=")
        if not name.strip() or not equals:
            continue
        header, told = unquote(name.strip()), unquote(value.strip())
        if not HEADER_NAME.fullmatch(header) or not told.isprintable():
            raise Misconfigured(
                "OTEL_EXPORTER_OTLP_HEADERS has a name or a value that no HTTP header can have"
            )
        headers[header] = told
    return headers


def _compression(environ: Mapping[str, str]) -> Compression:
    match either(environ, "COMPRESSION").lower():
        case "" | "none":
            return "none"
        case "gzip":
            return "gzip"
        case "deflate":
            return "deflate"
        case _:
            raise Misconfigured(
                "OTEL_EXPORTER_OTLP_COMPRESSION is none of 'none', 'gzip' and 'deflate'"
            )


def _tls(environ: Mapping[str, str], url: str) -> ssl.SSLContext | None:
    if not url.startswith("https://"):
        return None
    try:
        tls = ssl.create_default_context(cafile=either(environ, "CERTIFICATE") or None)
        if certificate := either(environ, "CLIENT_CERTIFICATE"):
            tls.load_cert_chain(certificate, either(environ, "CLIENT_KEY") or None)
    except OSError as error:
        raise Misconfigured(
            "the files that OTEL_EXPORTER_OTLP_CERTIFICATE, _CLIENT_CERTIFICATE and _CLIENT_KEY"
            f" name cannot be used: {error.strerror or type(error).__name__}"
        ) from error
    return tls


async def post(session: aiohttp.ClientSession, to: Collector, body: bytes) -> Answer:
    """One request, within `TIMEOUT`. Never raises: what went wrong is in the answer."""
    headers = dict(to.headers)
    if to.compression != "none":
        # It lets go of the interpreter's lock.
        compress = gzip.compress if to.compression == "gzip" else zlib.compress
        body = await asyncio.to_thread(compress, body)
        headers["Content-Encoding"] = to.compression
    try:
        async with (
            asyncio.timeout(TIMEOUT),
            session.post(
                to.url,
                data=body,
                headers=headers,
                allow_redirects=False,
                ssl=to.tls or True,
            ) as response,
        ):
            answer = await response.content.read(MAX_ANSWER)
            return _judge(response.status, answer, response.headers)
    except TimeoutError:
        return _no_answer(to, f"no answer within {TIMEOUT:g} s")
    except aiohttp.ClientConnectorError as error:
        return _no_answer(to, error.os_error.strerror or "no connection")
    except Exception as error:  # noqa: BLE001 - e.g. of a host that cannot be encoded; whoever sends goes on
        return _no_answer(to, type(error).__name__)


def _no_answer(to: Collector, why: str) -> Answer:
    """None in HTTP, at least."""
    hint = f"; port {GRPC_PORT} is usually that of gRPC, and OTLP over HTTP is at 4318"
    return Answer(why + (hint if urlsplit(to.url).port == GRPC_PORT else ""), again=True)


def _judge(status: int, answer: bytes, headers: Mapping[str, str]) -> Answer:
    if status in LATER:
        pause = retry_after(headers, now=datetime.now(UTC)) or 0.0
        return Answer(f"HTTP {status}", again=True, pause=min(pause, MAX_PAUSE))
    if not 200 <= status < 300:  # noqa: PLR2004 - what HTTP calls success
        return Answer(f"HTTP {status}", rejected=ALL)
    try:
        partial = ExportTraceServiceResponse.FromString(answer).partial_success
    except Exception:  # noqa: BLE001 - protobuf's own; the status has said all that matters
        return Answer()
    if partial.rejected_spans > 0:
        why = clean(partial.error_message) or "it took only some of them"
        return Answer(why, rejected=partial.rejected_spans)
    return Answer()
