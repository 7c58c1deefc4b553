"""A worker that is told to stop finishes what it began, gives back the rest, and leaves at once."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

import psycopg
import pytest

from tests.support.observing import (
    CLAIM,
    FINALIZE,
    RECLAIM,
    count,
    eventually,
    is_waiting,
    rows,
    until_a_statement_waits,
)
from tests.support.outbox_rows import fill
from tests.support.workers import WorkerProcess

if TYPE_CHECKING:
    from tests.support.observing import Conn
    from tests.support.receiver import Receiver

SLOW_STATEMENTS = {
    "DATABASE__STATEMENT_TIMEOUT": "5",
    "DRAIN__SOFT": "6",
    "DRAIN__GRACE": "16",
}


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_an_idle_worker_leaves_at_once_and_takes_its_heartbeat_row_with_it(
    conn: Conn, dsn: str, number: signal.Signals
) -> None:
    with WorkerProcess(dsn, "noop://").started() as worker:
        heartbeat = "SELECT FROM outbox_workers WHERE state = 'running'"
        eventually(lambda: conn.execute(heartbeat.encode()).rowcount == 1, "a heartbeat")
        code, seconds = worker.signal(number).exit()

    assert code == 0
    assert seconds < 2.0
    assert conn.execute("SELECT FROM outbox_workers").rowcount == 0
    assert worker.events("drain started")[0]["reason"] == number.name


def test_publishes_that_run_at_the_signal_end_in_peace_and_nothing_new_begins(
    conn: Conn, dsn: str, receiver: Receiver
) -> None:
    receiver.hold()
    patient = {
        "DESTINATIONS__DEFAULT__PUBLISH_TIMEOUT": "9",
        "DRAIN__SOFT": "10",
        "DRAIN__GRACE": "20",
    }
    with WorkerProcess(dsn, receiver.url, **patient).started() as worker:
        assert (worker.get("/livez"), worker.get("/readyz")) == (200, 200)
        fill(conn, 10)
        receiver.until_arrived(10)
        worker.signal().wait_for("drain started")
        assert (worker.get("/livez"), worker.get("/readyz")) == (200, 503)
        query = "SELECT FROM outbox_workers WHERE state = 'draining' AND busy = 10"
        eventually(lambda: conn.execute(query).rowcount == 1, "a heartbeat that tells of the drain")
        fill(conn, 5)
        # A second signal, of either kind, neither hastens nor delays anything.
        worker.signal().signal(signal.SIGINT)
        assert worker.running
        receiver.let_go()
        code, seconds = worker.exit()

    assert code == 0
    assert seconds < 5.0
    assert rows(conn, "status, attempts, reclaims, lease_version")[:10] == [("done", 1, 0, 1)] * 10
    assert rows(conn, "status, attempts, lease_version")[10:] == [("pending", 0, 0)] * 5
    assert len(receiver.deliveries) == 10
    ended = worker.wait_for("drain ended")
    assert (ended["finished"], ended["interrupted"], ended["abandoned"]) == (10, 0, 0)


def hold_up_a_claim(conn: Conn, blocker: psycopg.Connection) -> None:
    """20 messages that a claim waits for; should it be the reclaim that waits, then once more."""
    while True:
        fill(blocker, 20)
        # Due before any claim began that may be waiting by now.
        blocker.execute(
            "UPDATE outbox SET available_at = now() - interval '1 s',"
            " created_at = now() - interval '1 s'"
        )
        blocker.execute("LOCK TABLE outbox IN EXCLUSIVE MODE")
        until_a_statement_waits(conn, f"{CLAIM}|{RECLAIM}")
        if is_waiting(conn, CLAIM):
            return
        blocker.rollback()


def test_what_a_claim_under_way_brings_is_handed_back_within_a_second_at_no_cost(
    conn: Conn, dsn: str, receiver: Receiver
) -> None:
    with (
        WorkerProcess(dsn, receiver.url, **SLOW_STATEMENTS).started() as worker,
        psycopg.connect(dsn) as blocker,
    ):
        hold_up_a_claim(conn, blocker)
        worker.signal().wait_for("drain started")
        blocker.commit()
        handed_back = eventually(
            lambda: count(conn, "status = 'pending' AND lease_version = 1") == 20,
            "20 messages that were claimed and handed back",
        )
        code, _ = worker.exit()

    assert code == 0
    assert handed_back < 1.0
    assert set(rows(conn, "attempts, available_at = created_at")) == {(0, True)}
    assert worker.events("drain ended")[0]["handed_back"] == 20
    assert receiver.deliveries == []


def test_a_drain_during_the_reclaim_does_not_go_on_to_the_claim(conn: Conn, dsn: str) -> None:
    worker = WorkerProcess(dsn, "noop://", **SLOW_STATEMENTS)
    with worker, psycopg.connect(dsn) as blocker:
        fill(blocker, 3)
        blocker.execute("LOCK TABLE outbox IN EXCLUSIVE MODE")
        worker.started()
        # The first thing that a worker does is to reclaim.
        until_a_statement_waits(conn, RECLAIM)
        worker.signal().wait_for("drain started")
        blocker.commit()
        assert worker.exit().code == 0

    assert rows(conn, "status, attempts, lease_version") == [("pending", 0, 0)] * 3


def test_a_finalize_that_waits_for_a_lock_is_written_before_the_worker_leaves(
    conn: Conn, dsn: str, receiver: Receiver
) -> None:
    receiver.hold()
    with (
        WorkerProcess(dsn, receiver.url).started() as worker,
        psycopg.connect(dsn) as blocker,
    ):
        fill(conn, 5)
        receiver.until_arrived(5)
        blocker.execute("SELECT FROM outbox FOR UPDATE")
        receiver.let_go()
        until_a_statement_waits(conn, FINALIZE)
        worker.signal().wait_for("drain started")
        # Longer than a statement may take: the finalize is tried again, for as long as there is.
        worker.wait_for("database failed", doing="finalize")
        blocker.rollback()
        code, _ = worker.exit()

    assert code == 0
    assert rows(conn, "status, attempts, lease_version") == [("done", 1, 1)] * 5
    assert set(receiver.arrivals.values()) == {1}
    assert worker.events("lease lost") == []
