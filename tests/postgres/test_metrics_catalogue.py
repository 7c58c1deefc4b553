"""What each component really exports, after all sorts of traffic, is what the catalogue says."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from prometheus_client.parser import text_string_to_metric_families as parse_text

from pgoutbox.database.migrate import apply
from pgoutbox.telemetry.catalogue import BY_NAME, EXPORTER, METRICS, OPERATOR, WORKER
from tests.support.described import OPEN, PLAIN, assert_as_described, families, scrape, value
from tests.support.exporters import ExporterProcess, samples
from tests.support.horizons import held_snapshot
from tests.support.observing import eventually
from tests.support.outbox_rows import fill, insert
from tests.support.receiver import Receiver
from tests.support.workers import WorkerProcess

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    import psycopg
    from prometheus_client.metrics_core import Metric as Family

TRACE, SPAN = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
TRACED = f'{{"traceparent": "00-{TRACE}-{SPAN}-01", "secret": "hunter2"}}'
DESTINATION = {"destination": "default"}
DATABASE = frozenset({"database"})


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with Receiver() as started:
        yield started


def worker_to(dsn: str, receiver: Receiver) -> WorkerProcess:
    more = {"DESTINATIONS__DEFAULT__RETRY__BASE": "0.05", "DESTINATIONS__DEFAULT__RETRY__CAP": "1"}
    return WorkerProcess(dsn, receiver.url, **more)


def test_what_a_worker_exports_is_the_catalogues_before_and_after_all_sorts_of_traffic(
    dsn: str, conn: psycopg.Connection, receiver: Receiver
) -> None:
    fill(conn, 1000, status="'done'", pending_since="NULL", done_at="now()")
    fill(conn, 100, status="'dead'", pending_since="NULL")
    with worker_to(dsn, receiver).started() as worker:
        before = scrape(worker.port, OPEN)
        assert_as_described(before, WORKER)
        assert value(before, "outbox_messages_published_total", **DESTINATION) == 0
        dead = DESTINATION | {"reason": "permanent"}
        assert value(before, "outbox_messages_dead_lettered_total", **dead) == 0
        receiver.status = 503
        retried = insert(conn, headers=TRACED)
        failed = worker.wait_for("publish failed")
        receiver.status = 204
        worker.wait_for("delivered")
        receiver.status = 400
        buried = insert(conn, headers=TRACED)
        lost = worker.wait_for("dead letters")
        after = scrape(worker.port, OPEN)
        assert_as_described(after, WORKER)
        assert value(after, "outbox_messages_published_total", **DESTINATION) == 1
        assert value(after, "outbox_messages_dead_lettered_total", **dead) == 1
        again = DESTINATION | {"outcome": "retryable"}
        assert value(after, "outbox_publish_attempts_total", **again) >= 1
    for line, number, level in ((failed, retried, "warning"), (lost, buried, "error")):
        assert (line["level"], line["outbox_ids"]) == (level, [number])
        assert (line["trace_id"], line["span_id"]) == (TRACE, SPAN)
    assert [line["event"] for line in worker.lines if line.get("level") == "error"] == [
        "dead letters"
    ]
    assert "hunter2" not in repr(worker.lines)


def test_a_sampled_message_is_an_example_for_who_asks_for_open_metrics(
    dsn: str, conn: psycopg.Connection, receiver: Receiver
) -> None:
    with worker_to(dsn, receiver).started() as worker:
        insert(conn, headers=TRACED)
        worker.wait_for("delivered")
        page, plain = scrape(worker.port, OPEN), scrape(worker.port, PLAIN)
    assert page.content_type.startswith("application/openmetrics-text; version=1.0.0")
    for name in ("outbox_publish_duration_seconds", "outbox_delivery_latency_seconds"):
        (exemplar,) = (each.exemplar for each in families(page)[name].samples if each.exemplar)
        assert exemplar.labels == {"trace_id": TRACE, "span_id": SPAN}
    assert plain.content_type.startswith("text/plain; version=0.0.4")
    assert "trace_id" not in plain.text
    parse: Callable[[str], Iterable[Family]] = parse_text
    shown = {sample.name for family in parse(plain.text) for sample in family.samples}
    wanted = {name for metric in WORKER for name in metric.series}
    assert {name for name in shown if name.startswith("outbox_")} == wanted


def test_what_the_exporter_exports_is_the_catalogues(dsn: str, conn: psycopg.Connection) -> None:
    insert(conn, destination="bank")
    insert(conn, destination="bank", status="dead", pending_since=None)
    conn.execute("VACUUM outbox")
    apply(conn, schema="events")
    several = {"DATABASES__SHOP__DSN": dsn, "DATABASES__STOCK__DSN": dsn}
    several |= {"DATABASES__STOCK__SCHEMA": "events"}
    with (
        held_snapshot(dsn),
        ExporterProcess(dsn).started() as one,
        ExporterProcess(dsn, **several).started() as both,
    ):
        for process in (one, both):

            def seen(process: ExporterProcess = process) -> bool:
                told = samples(scrape(process.port, PLAIN).text)
                up = [key for key, value in told.items() if key[0] == "outbox_collector_up"]
                return all(told[key] == 1 for key in up)

            eventually(seen, "a look")
        assert_as_described(scrape(one.port, OPEN), EXPORTER)
        assert_as_described(scrape(both.port, OPEN), EXPORTER, named=DATABASE)


def test_every_metric_is_exported_by_whom_the_catalogue_says() -> None:
    for metric in METRICS:
        exported = {
            "worker": metric in WORKER,
            "exporter": metric in EXPORTER,
            "operator": metric in (*EXPORTER, *OPERATOR),
        }
        assert {name for name, does in exported.items() if does} == set(metric.components)
    assert {BY_NAME[name].name for name in BY_NAME} == {metric.name for metric in METRICS}
