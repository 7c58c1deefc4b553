from __future__ import annotations

import threading
from contextlib import ExitStack
from typing import TYPE_CHECKING

import psycopg
import pytest

from tests.support.outbox_rows import insert
from tests.support.waiting import until_waiting

if TYPE_CHECKING:
    from collections.abc import Iterator


class Writer(threading.Thread):
    """Inserts one message into lane ``k`` in a session of its own, then commits."""

    def __init__(self, dsn: str, name: str) -> None:
        super().__init__(daemon=True)
        self.conn = psycopg.connect(dsn)
        self.label = name
        self.start()

    def run(self) -> None:
        with self.conn:
            insert(self.conn, ordering_key="k", event_type=self.label)


@pytest.fixture
def other(dsn: str) -> Iterator[psycopg.Connection]:
    """A session that would rather fail than wait."""
    with psycopg.connect(dsn, options="-c lock_timeout=1") as connection:
        yield connection


def ids(conn: psycopg.Connection) -> dict[str, int]:
    return dict(conn.execute("SELECT event_type, id FROM outbox").fetchall())


def test_the_second_writer_of_a_lane_waits_and_draws_its_id_after_the_first_commit(
    dsn: str, conn: psycopg.Connection
) -> None:
    with ExitStack() as first:
        first.enter_context(conn.transaction())
        insert(conn, ordering_key="k", event_type="first")
        second = Writer(dsn, "second")
        until_waiting(conn, second.conn.info.backend_pid, on="advisory")
        # Drawn while the second one waits: had it drawn its id before waiting, this one were later.
        insert(conn, event_type="between")
    second.join(timeout=30)
    found = ids(conn)
    assert found["first"] < found["between"] < found["second"]


def test_a_waiting_writer_goes_on_when_the_first_rolls_back(
    dsn: str, conn: psycopg.Connection
) -> None:
    with conn.transaction(force_rollback=True):
        insert(conn, ordering_key="k", event_type="first")
        second = Writer(dsn, "second")
        until_waiting(conn, second.conn.info.backend_pid, on="advisory")
    second.join(timeout=30)
    assert list(ids(conn)) == ["second"]


def test_other_lanes_and_unordered_messages_do_not_wait(
    conn: psycopg.Connection, other: psycopg.Connection
) -> None:
    with conn.transaction():
        insert(conn, ordering_key="k")
        insert(other, ordering_key="k2")
        insert(other, ordering_key="k", destination="elsewhere")
        insert(other)
        with pytest.raises(psycopg.errors.LockNotAvailable):
            insert(other, ordering_key="k")


def test_messages_of_one_transaction_keep_their_order_within_a_lane(
    conn: psycopg.Connection,
) -> None:
    with conn.transaction():
        for label in ("a", "b", "c"):
            insert(conn, ordering_key="k", event_type=label)
    found = ids(conn)
    assert sorted(found, key=found.__getitem__) == ["a", "b", "c"]


def test_messages_of_one_statement_keep_their_order_within_a_lane(
    conn: psycopg.Connection,
) -> None:
    conn.execute("""
        INSERT INTO outbox (aggregate_type, aggregate_id, event_type, payload, ordering_key)
        SELECT 't', 'i', to_char(g, 'FM0000'), '1', 'k' FROM generate_series(1, 1000) g
    """)
    found = ids(conn)
    assert sorted(found, key=found.__getitem__) == sorted(found)


def test_sessions_draw_ids_one_by_one(conn: psycopg.Connection) -> None:
    row = conn.execute(
        "SELECT seqcache FROM pg_sequence WHERE seqrelid = 'outbox_id_seq'::regclass"
    ).fetchone()
    assert row == (1,)


def test_transactions_over_two_lanes_in_opposite_order_deadlock_and_may_be_tried_again(
    dsn: str, conn: psycopg.Connection
) -> None:
    conn.execute("SET deadlock_timeout = '60s'")  # so that the other one finds the deadlock
    pid = conn.info.backend_pid
    with (
        psycopg.connect(dsn, autocommit=True) as watcher,
        psycopg.connect(dsn, options="-c deadlock_timeout=10ms") as second,
    ):
        conn.execute("BEGIN")
        insert(conn, ordering_key="k1")
        insert(second, ordering_key="k2")
        crossing = threading.Thread(target=insert, args=(conn,), kwargs={"ordering_key": "k2"})
        crossing.start()
        until_waiting(watcher, pid, on="advisory")
        with pytest.raises(psycopg.errors.DeadlockDetected):
            insert(second, ordering_key="k1")
        second.rollback()
        crossing.join(timeout=30)
        conn.execute("COMMIT")
        insert(second, ordering_key="k2")
        insert(second, ordering_key="k1")
    assert conn.execute("SELECT count(*) FROM outbox").fetchone() == (4,)
