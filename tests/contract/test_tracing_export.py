"""Spans reach a collector that takes them; one that does not costs spans, and nobody's time."""

from __future__ import annotations

import asyncio
import socket
import time
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import aiohttp
import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTracePartialSuccess,
    ExportTraceServiceResponse,
)
from opentelemetry.proto.trace.v1.trace_pb2 import Span
from opentelemetry.sdk.resources import Resource
from structlog.testing import capture_logs

from pgoutbox.telemetry.tracing.collector import Answer, Misconfigured, collector, post
from pgoutbox.telemetry.tracing.export import Exporter, Limits, limits
from pgoutbox.telemetry.tracing.pipeline import frame
from tests.support.dispatching import eventually
from tests.support.otlp import Collector

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

SOON = Limits(queue=50, batch=10, delay=0.05)
BUDGET = 3.0


def at(url: str) -> dict[str, str]:
    return {"OTEL_EXPORTER_OTLP_ENDPOINT": url}


def exporter(url: str, chosen: Limits = SOON, **environ: str) -> Exporter:
    to = collector({"OTEL_EXPORTER_OTLP_ENDPOINT": url, **environ})
    return Exporter(to, frame(Resource({"service.name": "x"})), chosen)


@asynccontextmanager
async def sending(url: str, chosen: Limits = SOON, **environ: str) -> AsyncIterator[Exporter]:
    started = exporter(url, chosen, **environ)
    started.start()
    try:
        yield started
    finally:
        await started.close(BUDGET)


def add(to: Exporter, count: int) -> None:
    for number in range(count):
        to.add(Span(name=f"span {number}").SerializeToString())


@pytest.fixture
def taking() -> Iterator[Collector]:
    with Collector() as started:
        yield started


@pytest.fixture
def hanging() -> Iterator[str]:
    """Connections are established, and that is all."""
    with socket.create_server(("127.0.0.1", 0), backlog=100) as listening:
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"


@pytest.fixture
def down() -> Iterator[str]:
    """A port that nobody listens at."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        yield f"http://127.0.0.1:{bound.getsockname()[1]}"


async def test_all_spans_arrive_once_in_requests_of_limited_size(taking: Collector) -> None:
    async with sending(taking.url) as sent:
        add(sent, 35)
    assert sorted(span.name for span in taking.spans) == sorted(f"span {n}" for n in range(35))
    sizes = [len(one.resource_spans[0].scope_spans[0].spans) for one in taking.requests]
    assert max(sizes) == 10
    assert sent.counts.exported == 35
    assert sum(sent.counts.dropped.values()) == 0


async def test_few_spans_wait_no_longer_than_the_delay(taking: Collector) -> None:
    async with sending(taking.url) as sent:
        add(sent, 1)
        await eventually(lambda: taking.spans)


async def test_a_whole_request_does_not_wait_for_the_delay(taking: Collector) -> None:
    async with sending(taking.url, Limits(queue=50, batch=10, delay=3600)) as sent:
        add(sent, 10)
        await eventually(lambda: len(taking.spans) == 10)


async def test_the_sender_is_named_once_for_all_spans(taking: Collector) -> None:
    async with sending(taking.url) as sent:
        add(sent, 2)
    assert taking.resource == {"service.name": "x"}
    scope = taking.requests[0].resource_spans[0].scope_spans[0]
    assert scope.scope.name == "outbox.dispatcher"
    assert scope.schema_url == "https://opentelemetry.io/schemas/1.44.0"


@pytest.mark.parametrize("compression", ["gzip", "deflate"])
async def test_headers_and_compression_are_those_of_the_environment(
    taking: Collector, compression: str
) -> None:
    environ = {
        "OTEL_EXPORTER_OTLP_COMPRESSION": compression,
        "OTEL_EXPORTER_OTLP_HEADERS": "authorization=Bearer%20t,x-tenant = a=b",
    }
    async with sending(taking.url, SOON, **environ) as sent:
        add(sent, 2)
    assert len(taking.spans) == 2
    assert (
        taking.headers[0].items()
        >= {
            "authorization": "Bearer t",
            "x-tenant": "a=b",
            "content-encoding": compression,
            "content-type": "application/x-protobuf",
        }.items()
    )


async def test_what_a_collector_cannot_take_now_is_sent_again(taking: Collector) -> None:
    taking.status = 503
    async with sending(taking.url) as sent:
        add(sent, 5)
        await eventually(lambda: len(taking.headers) >= 2)
        taking.status = 200
        await eventually(lambda: sent.counts.exported == 5)
        assert len(taking.spans) == 5
        assert sum(sent.counts.dropped.values()) == 0


async def test_what_a_collector_does_not_want_is_counted_and_not_sent_again(
    taking: Collector,
) -> None:
    taking.status = 400
    async with sending(taking.url) as sent:
        add(sent, 5)
        await eventually(lambda: sent.counts.dropped["rejected"] == 5)
        taking.status = 200
        add(sent, 1)
        await eventually(lambda: sent.counts.exported == 1)
    assert [span.name for span in taking.spans] == ["span 0"]


@pytest.mark.parametrize(("rejected", "counted"), [(2, 2), (1_000, 5), (-3, 0)])
async def test_what_a_collector_takes_only_in_part_is_counted_for_as_much_as_was_sent(
    taking: Collector, rejected: int, counted: int
) -> None:
    partial = ExportTracePartialSuccess(rejected_spans=rejected, error_message="too\nold")
    taking.answer = ExportTraceServiceResponse(partial_success=partial).SerializeToString()
    with capture_logs() as logs:
        async with sending(taking.url) as sent:
            add(sent, 5)
            await eventually(lambda: taking.requests)
    assert sent.counts.dropped["rejected"] == counted
    assert sent.counts.exported == 5 - counted
    told = ["too\N{REPLACEMENT CHARACTER}old"] if counted else []
    assert [line["error"] for line in logs if "error" in line] == told


async def test_a_collector_is_left_alone_for_as_long_as_it_asks(taking: Collector) -> None:
    taking.status, taking.retry_after = 429, "1"
    async with sending(taking.url) as sent:
        began = time.monotonic()
        add(sent, 10)
        await eventually(lambda: taking.headers)
        taking.status = 200
        await eventually(lambda: sent.counts.exported == 10)
        assert time.monotonic() - began >= 1.0


async def test_a_collector_that_asks_for_a_year_is_asked_again_within_a_minute(
    taking: Collector,
) -> None:
    taking.status, taking.retry_after = 503, "31536000"
    to = collector({"OTEL_EXPORTER_OTLP_ENDPOINT": taking.url})
    async with aiohttp.ClientSession() as session:
        answer = await post(session, to, b"")
    assert answer == Answer("HTTP 503", again=True, pause=60.0)


async def test_what_nobody_expected_costs_spans_and_not_the_task_that_sends_them() -> None:
    sent = exporter(f"http://{'x' * 70}.example")
    sent.start()
    with capture_logs() as logs:
        add(sent, 1)
        await eventually(lambda: logs)
    assert [line["event"] for line in logs] == ["the collector does not take spans"]
    await sent.close(BUDGET)
    assert sent.counts.dropped["exit"] == 1


@pytest.mark.parametrize("answers", [False, True])
async def test_the_port_of_grpc_is_pointed_out_where_nobody_speaks_http_there(
    *, answers: bool
) -> None:
    # An address that nobody else has services at.
    host = "127.43.17.1"
    async with aiohttp.ClientSession() as session:
        if answers:
            settings = b"\0\0\0\4\0\0\0\0\0"  # what HTTP/2 begins with

            def speak(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
                writer.write(settings)
                writer.close()

            async with await asyncio.start_server(speak, host, 4317):
                answer = await post(session, collector(at(f"http://{host}:4317")), b"")
        else:
            answer = await post(session, collector(at(f"http://{host}:4317")), b"")
    assert answer.again
    assert "4317" in answer.problem
    assert "OTLP over HTTP is at 4318" in answer.problem


async def test_other_ports_and_answers_in_http_point_nothing_out(
    taking: Collector, down: str
) -> None:
    taking.status = 404
    async with aiohttp.ClientSession() as session:
        answers = [await post(session, collector(at(url)), b"") for url in (down, taking.url)]
    assert answers[1].problem == "HTTP 404"
    assert not any("4318" in answer.problem for answer in answers)


async def test_while_nobody_listens_spans_wait_until_the_queue_is_full_and_are_then_counted(
    down: str,
) -> None:
    async with sending(down) as sent:
        add(sent, 200)
        assert sent.counts.dropped["queue_full"] == 150
    assert sent.counts.dropped == {"queue_full": 150, "rejected": 0, "exit": 50}


async def test_a_collector_that_hangs_delays_the_end_by_one_request_at_most(hanging: str) -> None:
    sent = exporter(hanging)
    sent.start()
    add(sent, 50)
    began = time.monotonic()
    await sent.close(BUDGET)
    assert time.monotonic() - began < BUDGET
    assert sent.counts.dropped["exit"] == 50


async def test_the_budget_of_the_end_is_kept_whatever_it_is(hanging: str) -> None:
    sent = exporter(hanging)
    sent.start()
    add(sent, 50)
    await asyncio.sleep(0)
    began = time.monotonic()
    await sent.close(0.2)
    assert 0.15 < time.monotonic() - began < 1.0
    assert sent.counts.dropped["exit"] == 50


async def test_adding_a_span_waits_for_nothing_while_a_request_hangs(hanging: str) -> None:
    sent = exporter(hanging, Limits(queue=100_000, batch=10, delay=0.05))
    sent.start()
    add(sent, 10)
    await asyncio.sleep(0)
    began = time.process_time()
    add(sent, 10_000)
    assert time.process_time() - began < 1.0
    await sent.close(0.0)
    assert sent.counts.dropped["exit"] == 10_010


async def test_spans_that_come_after_the_end_are_counted(taking: Collector) -> None:
    async with sending(taking.url) as sent:
        pass
    add(sent, 3)
    assert sent.counts.dropped["exit"] == 3


async def test_an_end_without_a_beginning_loses_what_waits() -> None:
    sent = exporter("http://127.0.0.1:1")
    add(sent, 3)
    await sent.close(BUDGET)
    assert sent.counts.dropped["exit"] == 3


def test_an_endpoint_for_traces_is_taken_as_it_is_and_one_for_all_gets_the_path() -> None:
    both = {
        "OTEL_EXPORTER_OTLP_ENDPOINT": "http://all:4318/",
        "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "https://traces/x?y=1",
    }
    assert collector(both).url == "https://traces/x?y=1"
    del both["OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"]
    assert collector(both).url == "http://all:4318/v1/traces"
    assert collector({}).url == "http://localhost:4318/v1/traces"


def test_a_password_in_the_endpoint_is_not_for_the_log() -> None:
    url = "https://user:hunter2@collector:4318/hunter2"
    assert collector({"OTEL_EXPORTER_OTLP_ENDPOINT": url}).where == "https://collector:4318"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("ENDPOINT", "collector:4317"),
        ("ENDPOINT", "grpc://hunter2@collector"),
        ("ENDPOINT", "http://hunter2@collector:99999"),
        ("ENDPOINT", "http://hunter2@[collector"),
        ("HEADERS", "x-tenant=hunter2%0A"),
        ("HEADERS", "x tenant=hunter2"),
        ("COMPRESSION", "hunter2"),
        ("CERTIFICATE", "/no/such/hunter2"),
        ("TRACES_CLIENT_CERTIFICATE", "/no/such/hunter2"),
    ],
)
def test_a_value_with_which_nothing_can_be_sent_is_named_and_not_shown(
    name: str, value: str
) -> None:
    environ = {"OTEL_EXPORTER_OTLP_ENDPOINT": "https://collector"}
    with pytest.raises(Misconfigured, match="OTEL_EXPORTER_OTLP_") as refusal:
        collector(environ | {f"OTEL_EXPORTER_OTLP_{name}": value})
    assert "hunter2" not in str(refusal.value)


def test_the_limits_are_those_of_the_environment_where_they_are_numbers() -> None:
    environ = {
        "OTEL_BSP_MAX_QUEUE_SIZE": "100",
        "OTEL_BSP_MAX_EXPORT_BATCH_SIZE": "many",
        "OTEL_BSP_SCHEDULE_DELAY": "250",
    }
    assert limits(environ) == Limits(queue=100, batch=100, delay=0.25)
    assert limits({"OTEL_BSP_MAX_QUEUE_SIZE": "0"}) == Limits(queue=2048, batch=512, delay=5.0)
