"""Spans as a worker sends them: what they say, how they hang together, and a collector of them."""

from __future__ import annotations

import gzip
import json
import threading
import zlib
from collections.abc import Callable  # noqa: TC003 - used below
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any, Self

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status

from tests.support.observing import eventually

if TYPE_CHECKING:
    from collections.abc import Iterable

Values = dict[str, Any]
DECODE: dict[str, Callable[[bytes], bytes]] = {
    "": bytes,
    "gzip": gzip.decompress,
    "deflate": zlib.decompress,
}


def traceparent(trace: int, span: int = 1, flags: str = "01") -> str:
    """The context of a producer's span."""
    return f"00-{trace:032x}-{span:016x}-{flags}"


def headers(trace: int, span: int = 1, flags: str = "01", **others: str) -> str:
    """The headers of a message that was created there, as PostgreSQL shows them."""
    return json.dumps({"traceparent": traceparent(trace, span, flags), **others})


def values(fields: Any) -> Values:
    """Attributes by name."""
    return {
        field.key: getattr(field.value, field.value.WhichOneof("value") or "") for field in fields
    }


def attributes(span: Span) -> Values:
    """What the span says."""
    return values(span.attributes)


def is_error(span: Span) -> bool:
    """Whether its status is an error."""
    return span.status.code == Status.StatusCode.STATUS_CODE_ERROR


def tree(spans: Iterable[Span]) -> str:
    """Each trace as an indented text, a line for each span.

    ``*1`` is what happened in the producer's trace 1. After ``->`` stand the spans of a link.
    """
    known = list(spans)
    names = {span.span_id: span.name.partition(" ")[0] for span in known}
    lines: list[str] = []

    def write(parent: bytes, trace_id: bytes, depth: int) -> None:
        for span in known:
            if span.parent_span_id == parent and span.trace_id == trace_id:
                lines.append("  " * depth + _line(span, names))
                write(span.span_id, trace_id, depth + 1)

    for trace_id in dict.fromkeys(span.trace_id for span in known):
        own = [span for span in known if span.trace_id == trace_id]
        inside = {span.span_id for span in own}
        for parent in dict.fromkeys(
            s.parent_span_id for s in own if s.parent_span_id not in inside
        ):
            if parent:
                lines.append(_producer(trace_id, parent))
            write(parent, trace_id, 1 if parent else 0)
    return "\n".join(lines)


def _line(span: Span, names: dict[bytes, str]) -> str:
    said = attributes(span)
    parts = [span.name]
    if "outbox.attempt" in said:
        parts.append(f"#{said['outbox.attempt']} {said['outbox.outcome']}")
    if "messaging.batch.message_count" in said:
        parts.append(f"({said['messaging.batch.message_count']})")
    if is_error(span):
        parts.append(f"! {said['error.type']}")
    parts += [f"[{event.name}]" for event in span.events]
    links = [
        names.get(link.span_id) or _producer(link.trace_id, link.span_id) for link in span.links
    ]
    return " ".join(parts + (["->", *links] if links else []))


def _producer(trace_id: bytes, span_id: bytes) -> str:
    trace, span = int.from_bytes(trace_id, "big"), int.from_bytes(span_id, "big")
    return f"*{trace}" if span == 1 else f"*{trace}.{span}"


class Collector:
    """Takes spans over HTTP, as a process of its own would."""

    def __init__(self, status: int = 200) -> None:
        self.status = status
        """With which it answers."""
        self.answer = b""
        self.retry_after = ""
        self.requests: list[ExportTraceServiceRequest] = []
        self.headers: list[dict[str, str]] = []
        collector = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                collector.headers.append({k.lower(): v for k, v in self.headers.items()})
                body = DECODE[self.headers.get("Content-Encoding", "")](body)
                if collector.status == 200:
                    collector.requests.append(ExportTraceServiceRequest.FromString(body))
                self.send_response(collector.status)
                self.send_header("Content-Length", str(len(collector.answer)))
                if collector.retry_after:
                    self.send_header("Retry-After", collector.retry_after)
                self.end_headers()
                self.wfile.write(collector.answer)

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,))

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    @property
    def spans(self) -> list[Span]:
        """All that were taken, in the order of their beginning."""
        found = [
            span
            for request in self.requests
            for around in request.resource_spans
            for scope in around.scope_spans
            for span in scope.spans
        ]
        return sorted(found, key=lambda span: span.start_time_unix_nano)

    @property
    def resource(self) -> Values:
        """What the last request says about its sender."""
        return values(self.requests[-1].resource_spans[0].resource.attributes)

    def until(self, count: int) -> list[Span]:
        """The spans, once there are so many."""
        eventually(lambda: len(self.spans) >= count, f"{count} spans")
        return self.spans
