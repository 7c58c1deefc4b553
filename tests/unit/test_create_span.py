"""Within a recorded span an enqueue is a span of its own, and elsewhere it costs nothing."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from opentelemetry import trace as api
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from pgoutbox import InvalidMessage, Message
from pgoutbox.producer import trace
from pgoutbox.producer.row import Row, row_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from opentelemetry.sdk.trace import ReadableSpan


@pytest.fixture
def provider(monkeypatch: pytest.MonkeyPatch) -> Iterator[TracerProvider]:
    """The one that the application has set."""
    found = TracerProvider()
    monkeypatch.setattr(api, "get_tracer", found.get_tracer)
    trace._writer.cache_clear()
    yield found
    trace._writer.cache_clear()
    found.shutdown()


@pytest.fixture
def ended(provider: TracerProvider) -> InMemorySpanExporter:
    exporter = InMemorySpanExporter()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    return exporter


def enqueued(**fields: object) -> Row:
    plain = {"aggregate_type": "order", "aggregate_id": "1", "event_type": "placed", "payload": 1}
    return row_of(Message(**(plain | fields)), max_payload_bytes=1000)  # type: ignore[arg-type]


def one(exporter: InMemorySpanExporter) -> ReadableSpan:
    [span] = exporter.get_finished_spans()
    return span


def parent_of(row: Row) -> str:
    return str(json.loads(row.headers)["traceparent"])


def test_the_stored_context_is_that_of_the_create_span(
    provider: TracerProvider, ended: InMemorySpanExporter
) -> None:
    with provider.get_tracer("shop").start_as_current_span("request") as request:
        row = enqueued(destination="orders")
        span = one(ended)
    ids = span.get_span_context()
    assert ids is not None
    assert span.parent == request.get_span_context()
    assert (span.name, span.kind) == ("create orders", api.SpanKind.PRODUCER)
    assert parent_of(row) == f"00-{ids.trace_id:032x}-{ids.span_id:016x}-{ids.trace_flags:02x}"


def test_the_create_span_says_what_was_created_and_not_what_is_in_it(
    provider: TracerProvider, ended: InMemorySpanExporter
) -> None:
    with provider.get_tracer("shop").start_as_current_span("request"):
        row = enqueued(destination="orders", payload={"card": "4111"}, headers={"token": "s"})
        span = one(ended)
    assert dict(span.attributes or {}) == {
        "messaging.system": "outbox",
        "messaging.operation.name": "create",
        "messaging.operation.type": "create",
        "messaging.destination.name": "orders",
        "messaging.message.id": str(row.message_id),
    }


def test_the_current_span_stays_the_current_one(
    provider: TracerProvider, ended: InMemorySpanExporter
) -> None:
    with provider.get_tracer("shop").start_as_current_span("request") as request:
        enqueued()
        assert api.get_current_span() is request
    assert len(ended.get_finished_spans()) == 2


def test_each_message_has_a_context_of_its_own(
    provider: TracerProvider, ended: InMemorySpanExporter
) -> None:
    with provider.get_tracer("shop").start_as_current_span("request"):
        parents = {parent_of(enqueued()) for _ in range(3)}
    assert len(parents) == 3
    assert len(ended.get_finished_spans()) == 4


@pytest.mark.usefixtures("provider")
def test_the_context_of_a_request_that_is_not_recorded_is_stored_as_it_is(
    ended: InMemorySpanExporter,
) -> None:
    request = api.NonRecordingSpan(api.SpanContext(1, 2, is_remote=True))
    with api.use_span(request):
        row = enqueued()
    assert parent_of(row) == f"00-{1:032x}-{2:016x}-00"
    assert ended.get_finished_spans() == ()


def test_a_creation_context_of_the_user_is_kept_and_no_span_made(
    provider: TracerProvider, ended: InMemorySpanExporter
) -> None:
    theirs = {"traceparent": f"00-{5:032x}-{6:016x}-01"}
    with provider.get_tracer("shop").start_as_current_span("request"):
        row = enqueued(headers=theirs)
        assert ended.get_finished_spans() == ()
    assert json.loads(row.headers) == theirs


def test_a_message_that_is_refused_is_not_created(
    provider: TracerProvider, ended: InMemorySpanExporter
) -> None:
    with provider.get_tracer("shop").start_as_current_span("request"):
        with pytest.raises(InvalidMessage):
            enqueued(delay="soon")
        with pytest.raises(InvalidMessage):
            enqueued(headers={"a": 1})
        assert ended.get_finished_spans() == ()


def test_an_enqueue_without_a_trace_imports_no_opentelemetry() -> None:
    program = (
        "import sys; from pgoutbox import Message; from pgoutbox.producer.row import row_of;"
        "row_of(Message(aggregate_type='a', aggregate_id='1', event_type='e', payload=1),"
        " max_payload_bytes=1000);"
        "sys.exit(any(name.startswith('opentelemetry') for name in sys.modules))"
    )
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
