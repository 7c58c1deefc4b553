"""Dead letters are requeued while traffic goes on: none is lost, none comes twice."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING

import psycopg
import pytest

from pgoutbox import Message, enqueue
from tests.support.observing import eventually
from tests.support.receiver import Receiver, message_ids
from tests.support.workers import WorkerProcess

if TYPE_CHECKING:
    from collections.abc import Iterator

FEW, MANY = 600, 10_000
RATE = 500
TRAFFIC = 200
"""Messages a second that are enqueued meanwhile."""


def bury(conn: psycopg.Connection, count: int) -> None:
    """Dead letters. Every tenth blocks a lane, and a message waits behind it."""
    conn.execute(
        "INSERT INTO outbox (aggregate_type, aggregate_id, event_type, payload, status,"
        " pending_since, attempts, last_error, ordering_key)"
        " SELECT 'order', n::text, 'order_paid', '{}', 'dead', NULL, 12, '503 Service Unavailable',"
        " CASE WHEN n %% 10 = 0 THEN 'lane-' || n END FROM generate_series(1, %s) AS n",
        [count],
    )
    conn.execute(
        "INSERT INTO outbox (aggregate_type, aggregate_id, event_type, payload, ordering_key)"
        " SELECT 'order', aggregate_id, 'order_sent', '{}', ordering_key FROM outbox"
        " WHERE ordering_key IS NOT NULL ORDER BY id"
    )


@contextmanager
def traffic(dsn: str) -> Iterator[None]:
    """Somebody enqueues all the time, a little at once."""
    stop = threading.Event()
    message = Message(aggregate_type="cart", aggregate_id="1", event_type="filled", payload={})

    def go_on() -> None:
        with psycopg.connect(dsn, autocommit=True) as conn:
            while not stop.wait(10 / TRAFFIC):
                with conn.transaction():
                    for _ in range(10):
                        enqueue(conn, message)

    thread = threading.Thread(target=go_on)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def requeue(dsn: str, *words: str) -> subprocess.Popen[str]:
    """``pgoutbox dead requeue``, as a person at a pipe runs it."""
    command = [sys.executable, "-m", "pgoutbox", "dead", "requeue", "--yes", "--json"]
    return subprocess.Popen(
        [*command, "--all", "--reason", "the consumer was repaired", *words],
        env=os.environ | {"PGOUTBOX_DSN": dsn},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.mark.parametrize(
    "count", [FEW, pytest.param(MANY, marks=[pytest.mark.bench, pytest.mark.timeout(300)])]
)
def test_all_are_delivered_once_at_the_rate_that_was_asked_for_while_traffic_goes_on(
    dsn: str, conn: psycopg.Connection, count: int
) -> None:
    bury(conn, count)
    with Receiver() as receiver, WorkerProcess(dsn, receiver.url).started():
        with traffic(dsn):
            out, err = requeue(dsn, "--rate", str(RATE)).communicate(timeout=200)
        told = json.loads(out)
        print(told)  # noqa: T201 - the figures of the long run
        assert (told["done"], told["left"], told["interrupted"]) == (count, 0, False), err
        # Never quicker: the first tenth of a second is waited for as well.
        assert told["seconds"] >= count / RATE * 0.99
        assert told["seconds"] <= count / RATE * 1.5 + 2
        left = "SELECT FROM outbox WHERE status <> 'done' LIMIT 1"
        eventually(lambda: not conn.execute(left).fetchall(), "all are delivered")
        arrived = receiver.arrivals
    assert set(arrived) == message_ids(conn)
    assert set(arrived.values()) == {1}
    [(audited, messages)] = conn.execute(
        "SELECT count(*), count(DISTINCT outbox_id) FROM outbox_audit"
    ).fetchall()
    assert audited == messages == count


def test_what_is_interrupted_has_done_whole_transactions_and_is_gone_on_with(
    dsn: str, conn: psycopg.Connection
) -> None:
    bury(conn, FEW)

    def audited() -> int:
        [(count,)] = conn.execute("SELECT count(DISTINCT outbox_id) FROM outbox_audit").fetchall()
        return int(count)

    process = requeue(dsn, "--rate", "100")
    eventually(lambda: audited() > 0, "some are requeued")
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=30)
    told = json.loads(out)
    assert process.returncode == 130
    assert told["interrupted"]
    assert 0 < told["done"] == audited() == FEW - told["left"]
    assert f"--died-before '{told['died_before']}'" in err
    # One died again since: with the moment it is left alone, and decided about by nobody twice.
    conn.execute(
        "UPDATE outbox SET status = 'dead', pending_since = NULL, available_at = now()"
        " WHERE id = (SELECT min(outbox_id) FROM outbox_audit)"
    )
    out, err = requeue(dsn, "--died-before", told["died_before"]).communicate(timeout=30)
    assert (json.loads(out)["done"], json.loads(out)["left"]) == (FEW - told["done"], 0), err
    assert audited() == FEW
    [(dead,)] = conn.execute("SELECT count(*) FROM outbox WHERE status = 'dead'").fetchall()
    assert dead == 1


def test_a_database_that_goes_away_is_told_with_how_many_were_done(
    dsn: str, conn: psycopg.Connection
) -> None:
    bury(conn, FEW)
    process = requeue(dsn, "--rate", "100")
    some = "SELECT FROM outbox_audit LIMIT 1"
    eventually(lambda: bool(conn.execute(some).fetchall()), "some are requeued")
    conn.execute(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
        " WHERE application_name = 'pgoutbox' AND datname = current_database()"
    )
    _, err = process.communicate(timeout=30)
    [(audited,)] = conn.execute("SELECT count(*) FROM outbox_audit").fetchall()
    assert process.returncode == 1
    assert f"the database failed after {audited} messages had been requeued" in err
    assert "The same command goes on with the rest" in err
