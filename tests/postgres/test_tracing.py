"""Spans of real workers on a real database: each message in its own trace, whatever goes wrong."""

from __future__ import annotations

import logging
import socket
import urllib.request
from typing import TYPE_CHECKING, Any

import pytest
from opentelemetry.proto.trace.v1.trace_pb2 import Span
from psycopg.types.json import Jsonb

from pgoutbox.events import Finalized, LeaseLost, Renewed
from pgoutbox.telemetry.tracing.attributes import of_destination
from pgoutbox.telemetry.tracing.observer import Tracing
from pgoutbox.telemetry.tracing.spans import Spans
from tests.support import dispatching as support
from tests.support.dispatching import Events, Scripted, dispatching, hang, to
from tests.support.observing import count, eventually
from tests.support.otlp import Collector, attributes, traceparent, tree
from tests.support.outbox_rows import fill, insert
from tests.support.workers import WorkerProcess

if TYPE_CHECKING:
    from collections.abc import Iterator

    import psycopg

    from pgoutbox.events import Event
    from pgoutbox.message import ClaimedMessage

EACH_ITS_OWN = (
    "jsonb_build_object('traceparent', '00-' || lpad(to_hex(g), 32, '0') || '-0000000000000001-01')"
)
URGENT = {"OTEL_BSP_SCHEDULE_DELAY": "100", "OTEL_BSP_MAX_QUEUE_SIZE": "100"}


class Observed(Events):
    """What a dispatcher emitted, and the spans that were made of it meanwhile."""

    def __init__(self) -> None:
        super().__init__()
        self.spans: list[Span] = []
        made = Spans(
            self._add, destinations={"default": of_destination("default", "noop://")}, owner="w"
        )
        self.tracing = Tracing(made, slots=100)

    def _add(self, span: bytes) -> None:
        self.spans.append(Span.FromString(span))

    def __call__(self, event: Event) -> None:
        self.tracing.on_event(event)
        super().__call__(event)

    def named(self, operation: str) -> list[Span]:
        return [span for span in self.spans if span.name.startswith(f"{operation} ")]


@pytest.fixture
def observed(monkeypatch: pytest.MonkeyPatch) -> Observed:
    """What the next dispatcher's events go to."""
    events = Observed()
    monkeypatch.setattr(support, "Events", lambda: events)
    return events


@pytest.fixture
def collector() -> Iterator[Collector]:
    with Collector() as started:
        yield started


def traced(conn: psycopg.Connection[Any], trace: int, **columns: object) -> int:
    """Insert a message that was created within a sampled span."""
    headers = Jsonb({"traceparent": traceparent(trace)})
    return insert(conn, headers=headers, **columns)


async def test_of_a_hundred_concurrent_publishes_each_is_below_its_own_producer(
    dsn: str, conn: psycopg.Connection[Any], observed: Observed, caplog: pytest.LogCaptureFixture
) -> None:
    with conn.transaction():
        fill(conn, 100, headers=EACH_ITS_OWN)

    async def script(message: ClaimedMessage) -> None:
        if message.lease_version == 1 and int(message.aggregate_id) % 10 == 0:
            await hang(message)

    publisher = Scripted(script)
    with caplog.at_level(logging.WARNING, "opentelemetry"):
        async with dispatching(dsn, to(publisher, concurrency=200, publish_timeout=0.3)) as running:
            await running.events.until(lambda: len(publisher.taken) == 100)
            await running.events.until(lambda: len(observed.named("publish")) == 110)
    assert publisher.most > 50
    traces = {str(m.message_id): int(m.aggregate_id) for m in publisher.begun}
    found = [
        (traces[str(attributes(span)["messaging.message.id"])], span)
        for span in observed.named("publish")
    ]
    assert all(int.from_bytes(span.trace_id, "big") == number for number, span in found)
    assert all(span.parent_span_id == (1).to_bytes(8, "big") for _, span in found)
    timed_out = sorted(
        number for number, span in found if attributes(span).get("error.type") == "timeout"
    )
    assert timed_out == list(range(10, 101, 10))
    assert caplog.records == []
    assert observed.tracing._held == {}


async def test_polls_that_find_nothing_make_no_spans(dsn: str, observed: Observed) -> None:
    publisher = Scripted()
    async with dispatching(dsn, to(publisher), max_interval=0.01) as running:
        await running.db.execute(b"SELECT pg_sleep(0.2)")
    assert observed.spans == []


async def test_a_lease_that_is_lost_and_one_that_is_renewed_are_told_by_their_publishes(
    dsn: str, conn: psycopg.Connection[Any], observed: Observed
) -> None:
    stolen, kept = traced(conn, 1), traced(conn, 2)
    publisher = Scripted(hang)
    async with dispatching(dsn, to(publisher), lease=30.0, renew=0.05) as running:
        await publisher.until(lambda: publisher.running == 2)
        [renewed, *_] = await running.events.seen(Renewed)
        conn.execute(
            "UPDATE outbox SET lease_owner = 'thief', lease_version = 99 WHERE id = %s", [stolen]
        )
        [lost] = await running.events.seen(LeaseLost)
    assert {message.id for message in renewed.messages} <= {stolen, kept}
    assert renewed.count == len(renewed.messages)
    [started] = lost.started
    assert started is not None
    ends = {int.from_bytes(s.trace_id, "big"): s for s in observed.named("publish")}
    assert [event.name for event in ends[1].events][-1] == "lease lost"
    assert attributes(ends[1])["error.type"] == "lease_lost"
    assert "lease renewed" in {event.name for event in ends[2].events}
    assert "lease lost" not in {event.name for event in ends[2].events}
    assert observed.tracing._held == {}


async def test_a_message_behind_another_one_of_its_lane_was_not_published_when_its_lease_is_lost(
    dsn: str, conn: psycopg.Connection[Any], observed: Observed
) -> None:
    first, second = (traced(conn, n, ordering_key="k") for n in (1, 2))
    publisher = Scripted(hang)
    async with dispatching(dsn, to(publisher), lease=30.0, renew=0.05) as running:
        await publisher.until(lambda: publisher.running == 1)
        await running.events.until(lambda: {first, second} <= set(running.dispatcher.in_flight.ids))
        conn.execute("UPDATE outbox SET lease_version = 99 WHERE id = %s", [second])
        [lost] = await running.events.seen(LeaseLost)
    assert lost.started == [None]
    published = {int.from_bytes(s.trace_id, "big") for s in observed.named("publish")}
    assert published == {1}


async def test_a_lane_is_claimed_and_published_like_any_other_message(
    dsn: str, conn: psycopg.Connection[Any], observed: Observed
) -> None:
    for number in (1, 2, 3):
        traced(conn, number, ordering_key="k")
    async with dispatching(dsn, to(Scripted())) as running:
        await running.events.finished(3)
        assert len(running.events.of(Finalized)) >= 1
    order = [int.from_bytes(span.trace_id, "big") for span in observed.named("publish")]
    assert sorted(order) == [1, 2, 3]
    by_start = sorted(observed.named("publish"), key=lambda span: span.start_time_unix_nano)
    assert [int.from_bytes(span.trace_id, "big") for span in by_start] == [1, 2, 3]


def worker(dsn: str, endpoint: str, **environ: str) -> WorkerProcess:
    process = WorkerProcess(dsn, "noop://")
    process._environ |= {"OTEL_EXPORTER_OTLP_ENDPOINT": endpoint, **URGENT, **environ}
    return process


def metric(process: WorkerProcess, series: str) -> float:
    with urllib.request.urlopen(f"http://127.0.0.1:{process.port}/metrics", timeout=5) as answer:
        lines = answer.read().decode().splitlines()
    [value] = [line.rpartition(" ")[2] for line in lines if line.startswith(f"{series} ")]
    return float(value)


def test_a_worker_process_sends_the_spans_of_a_message_and_says_who_it_is(
    dsn: str, conn: psycopg.Connection[Any], collector: Collector
) -> None:
    pod = {"POD_NAME": "w-0", "POD_NAMESPACE": "shop", "POD_UID": "u-1", "OTEL_SERVICE_NAME": "x"}
    with worker(dsn, collector.url, **pod).started() as process:
        traced(conn, 1)
        found = collector.until(3)
        eventually(lambda: metric(process, "outbox_spans_exported_total") == 3, "three spans")
        assert process.stop().code == 0
    assert sorted(tree(found).splitlines()[1:]) == [
        "  ack default (1)",
        "  claim default (1)",
        "  publish default #1 ok -> claim",
    ]
    assert (
        collector.resource.items()
        >= {
            "service.name": "x",
            "k8s.pod.name": "w-0",
            "k8s.pod.uid": "u-1",
            "k8s.namespace.name": "shop",
        }.items()
    )
    assert process.events("spans were lost") == []


def test_the_setting_puts_publishes_below_their_claim(
    dsn: str, conn: psycopg.Connection[Any], collector: Collector
) -> None:
    with worker(dsn, collector.url, PGOUTBOX_TRACING__PARENT="batch").started():
        traced(conn, 1)
        found = collector.until(3)
    claim = next(span for span in found if span.name == "claim default")
    assert {span.parent_span_id for span in found if span is not claim} == {claim.span_id}


def test_the_spans_of_the_last_messages_are_sent_during_the_drain(
    dsn: str, conn: psycopg.Connection[Any], collector: Collector
) -> None:
    with worker(dsn, collector.url, OTEL_BSP_SCHEDULE_DELAY="3600000").started() as process:
        traced(conn, 1)
        eventually(lambda: count(conn, "status = 'done'") == 1, "the delivery")
        assert collector.spans == []
        assert process.stop().code == 0
    assert len(collector.spans) == 3


def test_while_the_collector_is_down_messages_flow_and_lost_spans_are_counted(
    dsn: str, conn: psycopg.Connection[Any]
) -> None:
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        nobody = f"http://127.0.0.1:{bound.getsockname()[1]}"
        with worker(dsn, nobody).started() as process:
            with conn.transaction():
                fill(conn, 500, headers=EACH_ITS_OWN)
            eventually(lambda: count(conn, "status = 'done'") == 500, "all deliveries")
            dropped = 'outbox_spans_dropped_total{reason="queue_full"}'
            eventually(lambda: metric(process, dropped) >= 400, "spans that were dropped")
            process.wait_for("the collector does not take spans")
            assert process.stop().code == 0
    [lost] = process.events("spans were lost")
    assert lost["exit"] == 100
    assert len(process.events("the collector does not take spans")) == 1


def test_without_an_endpoint_a_worker_looks_for_no_collector(
    dsn: str, conn: psycopg.Connection[Any]
) -> None:
    with WorkerProcess(dsn, "noop://").started() as process:
        traced(conn, 1)
        eventually(lambda: count(conn, "status = 'done'") == 1, "the delivery")
        assert metric(process, "outbox_spans_exported_total") == 0
        assert process.stop().code == 0
    assert process.events("tracing") == []
