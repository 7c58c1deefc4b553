"""What goes wrong with the outbox arrives at whoever is on call, and that it is mended, too."""

from __future__ import annotations

from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pytest

from monitoring.limits import Limits, Pace
from monitoring.rules import groups
from tests.support.alerts import Inbox, Prometheus, alertmanager, prometheus
from tests.support.exporters import ExporterProcess
from tests.support.outbox_rows import insert
from tests.support.receiver import Receiver
from tests.support.workers import WorkerProcess

if TYPE_CHECKING:
    from pathlib import Path

    import psycopg

pytestmark = pytest.mark.broker

MINUTES_AS_SECONDS = Pace(1 / 60)
SOON = Limits(oldest_pending_seconds=2)
RUNBOOKS = "https://runbooks.example"


class Watch:
    """An exporter, and a Prometheus that scrapes it and a worker, with an Alertmanager behind."""

    def __init__(self, dsn: str, worker: WorkerProcess, folder: Path) -> None:
        self._dsn = dsn
        self._worker = worker
        self._folder = folder
        self._stack = ExitStack()

    def __enter__(self) -> tuple[Prometheus, Inbox]:
        enter = self._stack.enter_context
        exporter = enter(ExporterProcess(self._dsn).start())
        inbox = enter(Inbox())
        server = enter(
            prometheus(
                self._folder,
                groups(SOON, MINUTES_AS_SECONDS, runbooks=RUNBOOKS),
                targets={"shop": [f"127.0.0.1:{of.port}" for of in (exporter, self._worker)]},
                notify=enter(alertmanager(self._folder, inbox)),
            )
        )
        return server, inbox

    def __exit__(self, *_: object) -> None:
        self._stack.close()


def test_a_dead_letter_arrives_as_an_alert(
    dsn: str, conn: psycopg.Connection, tmp_path: Path
) -> None:
    # Its destination is known to the exporter before anything has died there.
    insert(conn, available_at=datetime.now(UTC) + timedelta(hours=1))
    with (
        Receiver(status=422) as receiver,
        WorkerProcess(dsn, receiver.url).started() as worker,
        Watch(dsn, worker, tmp_path) as (server, inbox),
    ):
        server.until('outbox_dead_letter_messages{destination="default"} == 0')
        server.until('sum(outbox_messages_dead_lettered_total{destination="default"}) == 0')
        insert(conn)
        for source in ("database", "worker"):
            alert = inbox.until("OutboxDeadLetterGrowth", source=source)
            assert alert.labels["destination"] == "default"
            assert alert.labels["namespace"] == "shop"
            assert alert.annotations["summary"] == "Messages for default died"
            assert alert.annotations["runbook_url"] == f"{RUNBOOKS}/OutboxDeadLetterGrowth.md"


def test_messages_without_a_worker_arrive_as_an_alert_until_there_is_one_again(
    dsn: str, conn: psycopg.Connection, tmp_path: Path
) -> None:
    with (
        Receiver() as receiver,
        WorkerProcess(dsn, receiver.url).started() as worker,
        Watch(dsn, worker, tmp_path) as (server, inbox),
    ):
        server.until("outbox_collector_up == 1")
        server.until("outbox_worker_slots")
        worker.stop()
        insert(conn)
        firing = inbox.until("OutboxOldestPendingAge")
        assert firing.labels["severity"] == "page"
        assert firing.labels["destination"] == "default"
        with WorkerProcess(dsn, receiver.url, HTTP__PORT=str(worker.port)).started():
            resolved = inbox.until("OutboxOldestPendingAge", "resolved")
        assert resolved.labels == firing.labels
