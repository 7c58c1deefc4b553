"""Where spans go, as `OTEL_*` says it, and one request there."""

from __future__ import annotations

import asyncio
import gzip
import ssl
import zlib
from typing import TYPE_CHECKING, Literal, NamedTuple
from urllib.parse import unquote, urlsplit

import aiohttp
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse

if TYPE_CHECKING:
    from collections.abc import Mapping

TRACES_PATH = "/v1/traces"
DEFAULT_ENDPOINT = "http://localhost:4318"
TIMEOUT = 2.0
"""Seconds for one request. `OTEL_EXPORTER_OTLP_TIMEOUT` is not read: OpenTelemetry defines it in
milliseconds, and its Python SDK takes it for seconds."""
MAX_ANSWER = 64 * 1024

LATER = (429, 502, 503, 504)
"""The statuses after which OTLP tries again."""

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
    """What became of a request. ``again``: it may be repeated. ``rejected``: so many spans."""

    problem: str = ""
    again: bool = False
    rejected: int = 0


def collector(environ: Mapping[str, str]) -> Collector:
    """The one that the environment names, or a collector on this host.

    Raises `Misconfigured`, without the value, which may hold a password.
    """
    url = environ.get("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "").strip()
    if not url:
        base = environ.get("OTEL_EXPORTER_OTLP_ENDPOINT", "").strip() or DEFAULT_ENDPOINT
        url = base.rstrip("/") + TRACES_PATH
    if not url.startswith(("http://", "https://")) or not urlsplit(url).hostname:
        raise Misconfigured("OTEL_EXPORTER_OTLP_ENDPOINT is not an http:// or https:// URL")
    return Collector(url, _headers(environ), _compression(environ), _tls(environ, url))


def either(environ: Mapping[str, str], name: str) -> str:
    """The variable for traces, or the one for all signals."""
    ours = environ.get(f"OTEL_EXPORTER_OTLP_TRACES_{name}", "").strip()
    return ours or environ.get(f"OTEL_EXPORTER_OTLP_{name}", "").strip()


def _headers(environ: Mapping[str, str]) -> dict[str, str]:
    headers = {"Content-Type": "application/x-protobuf"}
    for pair in either(environ, "HEADERS").split(","):
        name, equals, value = pair.partition("=")
        if name.strip() and equals:
            headers[unquote(name.strip())] = unquote(value.strip())
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
    """One request, within `TIMEOUT`. Raises nothing that a network does."""
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
            return _judge(response.status, answer)
    except TimeoutError:
        return Answer(f"no answer within {TIMEOUT:g} s", again=True)
    except aiohttp.ClientConnectorError as error:
        return Answer(error.os_error.strerror or "no connection", again=True)
    except (aiohttp.ClientError, OSError) as error:
        return Answer(type(error).__name__, again=True)


def _judge(status: int, answer: bytes) -> Answer:
    if status in LATER:
        return Answer(f"HTTP {status}", again=True)
    if not 200 <= status < 300:  # noqa: PLR2004 - what HTTP calls success
        return Answer(f"HTTP {status}")
    try:
        partial = ExportTraceServiceResponse.FromString(answer).partial_success
    except Exception:  # noqa: BLE001 - protobuf's own; the status has said all that matters
        return Answer()
    if partial.rejected_spans:
        return Answer("it took only some of them", rejected=partial.rejected_spans)
    return Answer()
