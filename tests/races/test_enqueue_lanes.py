"""Two writers of the same lanes: in opposite orders they deadlock, in one order they queue."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import psycopg
import pytest

import pgoutbox
from pgoutbox import Message
from tests.support.waiting import until_waiting


def in_lane(key: str, writer: str) -> Message:
    return Message(
        aggregate_type="order",
        aggregate_id=key,
        event_type="Changed",
        payload=writer,
        ordering_key=key,
    )


def lanes(conn: psycopg.Connection[Any]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for key, writer in conn.execute("SELECT ordering_key, payload FROM outbox ORDER BY id"):
        found.setdefault(key, []).append(writer)
    return found


def test_single_enqueues_over_two_lanes_in_opposite_orders_deadlock_and_a_retry_helps(
    conn: psycopg.Connection, dsn: str
) -> None:
    with (
        ThreadPoolExecutor(1) as pool,
        psycopg.connect(dsn) as one,
        psycopg.connect(dsn, options="-c deadlock_timeout=10ms") as two,
    ):
        pgoutbox.enqueue(one, in_lane("k1", "one"))
        pgoutbox.enqueue(two, in_lane("k2", "two"))
        blocked = pool.submit(pgoutbox.enqueue, one, in_lane("k2", "one"))
        until_waiting(conn, one.info.backend_pid, on="advisory")
        with pytest.raises(psycopg.errors.DeadlockDetected) as refused:
            pgoutbox.enqueue(two, in_lane("k1", "two"))
        assert refused.value.sqlstate == "40P01"
        assert "retry the whole transaction" in refused.value.__notes__[0]
        two.rollback()
        blocked.result()
        one.commit()
        for key in ("k2", "k1"):
            pgoutbox.enqueue(two, in_lane(key, "two"))
        two.commit()
    assert lanes(conn) == {"k1": ["one", "two"], "k2": ["one", "two"]}


def test_enqueue_many_takes_lanes_in_one_order_whatever_order_they_were_given_in(
    conn: psycopg.Connection, dsn: str
) -> None:
    with ThreadPoolExecutor(1) as pool, psycopg.connect(dsn) as two, psycopg.connect(dsn) as one:
        pgoutbox.enqueue(one, in_lane("k1", "one"))
        given = [in_lane("k2", "two"), in_lane("k1", "two")]
        blocked = pool.submit(pgoutbox.enqueue_many, two, given)
        until_waiting(conn, two.info.backend_pid, on="advisory")
        held = conn.execute(
            "SELECT FROM pg_locks WHERE pid = %s AND locktype = 'advisory' AND granted",
            [two.info.backend_pid],
        ).rowcount
        assert held == 0
        pgoutbox.enqueue(one, in_lane("k2", "one"))
        one.commit()
        blocked.result()
        two.commit()
    assert lanes(conn) == {"k1": ["one", "two"], "k2": ["one", "two"]}


def test_the_second_writer_of_a_lane_waits_and_gets_the_later_id(
    conn: psycopg.Connection, dsn: str
) -> None:
    with ThreadPoolExecutor(1) as pool, psycopg.connect(dsn) as two, psycopg.connect(dsn) as one:
        pgoutbox.enqueue(one, in_lane("k", "one"))
        blocked = pool.submit(pgoutbox.enqueue, two, in_lane("k", "two"))
        until_waiting(conn, two.info.backend_pid, on="advisory")
        pgoutbox.enqueue(one, in_lane("k", "one again"))
        one.commit()
        blocked.result()
        two.commit()
    assert lanes(conn) == {"k": ["one", "one again", "two"]}


async def test_an_async_enqueue_that_deadlocks_gives_the_same_advice(
    conn: psycopg.Connection, dsn: str
) -> None:
    options = "-c deadlock_timeout=10ms"
    with ThreadPoolExecutor(1) as pool, psycopg.connect(dsn) as one:
        async with await psycopg.AsyncConnection.connect(dsn, options=options) as two:
            pgoutbox.enqueue(one, in_lane("k1", "one"))
            await pgoutbox.enqueue(two, in_lane("k2", "two"))
            blocked = pool.submit(pgoutbox.enqueue, one, in_lane("k2", "one"))
            until_waiting(conn, one.info.backend_pid, on="advisory")
            with pytest.raises(psycopg.errors.DeadlockDetected) as refused:
                await pgoutbox.enqueue(two, in_lane("k1", "two"))
            assert "retry the whole transaction" in refused.value.__notes__[0]
            await two.rollback()
            blocked.result()
            one.commit()


@pytest.mark.parametrize("first_commits", [True, False])
def test_a_repeated_dedup_key_waits_for_the_first_transaction(
    conn: psycopg.Connection, dsn: str, *, first_commits: bool
) -> None:
    def keyed(writer: str) -> Message:
        return Message(
            aggregate_type="order",
            aggregate_id="42",
            event_type="Paid",
            payload=writer,
            dedup_key="order-42-paid",
        )

    with ThreadPoolExecutor(1) as pool, psycopg.connect(dsn) as two, psycopg.connect(dsn) as one:
        pgoutbox.enqueue(one, keyed("one"))
        blocked = pool.submit(pgoutbox.enqueue, two, keyed("two"))
        until_waiting(conn, two.info.backend_pid, on="transactionid")
        if first_commits:
            one.commit()
        else:
            one.rollback()
        blocked.result()
        two.commit()
    winner = "one" if first_commits else "two"
    assert conn.execute("SELECT payload FROM outbox").fetchall() == [(winner,)]
