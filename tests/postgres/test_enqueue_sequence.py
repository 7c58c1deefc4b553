"""Ids that come a second time, as after a logical failover, lose no message in silence."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import psycopg
import pytest

import pgoutbox
from pgoutbox import Message
from tests.support.outbox_rows import fill
from tests.support.roles import login_role
from tests.support.waiting import until_waiting

Enqueue = Callable[[psycopg.Connection[Any]], object]

PLAIN = Message(aggregate_type="order", aggregate_id="42", event_type="OrderPaid", payload=1)
ORDERED = replace(PLAIN, ordering_key="lane")
KEYED = replace(PLAIN, dedup_key="order-42-paid")
INSERT_ONLY = "outbox_producer"


def one(message: Message) -> Enqueue:
    return lambda conn: pgoutbox.enqueue(conn, message)


def many(*messages: Message) -> Enqueue:
    return lambda conn: pgoutbox.enqueue_many(conn, messages)


def function(arguments: str) -> Enqueue:
    call = f"SELECT outbox_enqueue('order', '42', 'OrderPaid', '1'{arguments})"
    return lambda conn: conn.execute(call.encode())


WAYS: dict[str, Enqueue] = {
    "one": one(PLAIN),
    "one in a lane": one(ORDERED),
    "one with a dedup key": one(KEYED),
    "one in a lane with a dedup key": one(replace(KEYED, ordering_key="lane")),
    "many": many(PLAIN, ORDERED),
    "many with dedup keys": many(KEYED, replace(KEYED, dedup_key="other")),
    "many, of which the first has a dedup key": many(KEYED, PLAIN),
    "many, of which the last has a dedup key": many(PLAIN, KEYED),
    "the function": function(""),
    "the function in a lane": function(", ordering_key => 'lane'"),
    "the function with a dedup key": function(", dedup_key => 'order-42-paid'"),
}


@pytest.fixture(params=WAYS)
def enqueue(request: pytest.FixtureRequest) -> Enqueue:
    return WAYS[request.param]


@pytest.fixture
def behind(conn: psycopg.Connection) -> psycopg.Connection:
    """The next ten ids belong to messages already."""
    fill(conn, 10)
    conn.execute("SELECT setval('outbox_id_seq', 1, false)")
    return conn


def test_an_id_that_is_taken_is_an_error_by_every_way(
    behind: psycopg.Connection, dsn: str, enqueue: Enqueue
) -> None:
    with login_role(dsn, INSERT_ONLY) as role, psycopg.connect(role.dsn) as producer:
        with pytest.raises(psycopg.errors.UniqueViolation) as refused:
            enqueue(producer)
        assert refused.value.diag.constraint_name == "outbox_pkey"
    assert behind.execute("SELECT count(*) FROM outbox").fetchone() == (10,)


def test_an_id_that_is_taken_by_an_open_transaction_is_an_error_by_every_way(
    conn: psycopg.Connection, dsn: str, enqueue: Enqueue
) -> None:
    with (
        ThreadPoolExecutor(1) as pool,
        psycopg.connect(dsn) as restoring,
        psycopg.connect(dsn) as producer,
    ):
        fill(restoring, 10)
        conn.execute("SELECT setval('outbox_id_seq', 1, false)")
        refused = pool.submit(enqueue, producer)
        until_waiting(conn, producer.info.backend_pid, on="transactionid")
        restoring.commit()
        with pytest.raises(psycopg.errors.UniqueViolation) as error:
            refused.result()
        assert error.value.diag.constraint_name == "outbox_pkey"


def test_a_repeated_dedup_key_is_no_error_for_a_role_that_may_only_insert(
    conn: psycopg.Connection, dsn: str
) -> None:
    with login_role(dsn, INSERT_ONLY) as role, psycopg.connect(role.dsn) as producer:
        first = pgoutbox.enqueue(producer, KEYED)
        assert pgoutbox.enqueue(producer, KEYED) == first
        assert pgoutbox.enqueue_many(producer, [KEYED, PLAIN, KEYED])[::2] == [first, first]
    assert conn.execute("SELECT count(*) FROM outbox").fetchone() == (2,)


def test_a_repeat_of_an_open_transaction_waits_and_then_gives_the_same_id(
    conn: psycopg.Connection, dsn: str
) -> None:
    with (
        ThreadPoolExecutor(1) as pool,
        psycopg.connect(dsn) as first,
        psycopg.connect(dsn) as second,
    ):
        message_id = pgoutbox.enqueue(first, KEYED)
        repeated = pool.submit(pgoutbox.enqueue_many, second, [KEYED, PLAIN])
        until_waiting(conn, second.info.backend_pid, on="transactionid")
        first.commit()
        assert repeated.result()[0] == message_id
    assert conn.execute("SELECT count(*) FROM outbox").fetchone() == (2,)


def test_a_repeat_of_a_transaction_that_rolls_back_is_the_first(
    conn: psycopg.Connection, dsn: str
) -> None:
    with (
        ThreadPoolExecutor(1) as pool,
        psycopg.connect(dsn) as first,
        psycopg.connect(dsn) as second,
    ):
        pgoutbox.enqueue(first, KEYED)
        repeated = pool.submit(pgoutbox.enqueue, second, replace(KEYED, payload=2))
        until_waiting(conn, second.info.backend_pid, on="transactionid")
        first.rollback()
        repeated.result()
    assert conn.execute("SELECT payload FROM outbox").fetchall() == [(2,)]


def test_rows_of_one_lane_keep_their_order_with_and_without_dedup_keys(
    conn: psycopg.Connection,
) -> None:
    given = [
        replace(PLAIN, payload=n, ordering_key=f"k{n % 3}", dedup_key=f"d{n}" if n % 2 else None)
        for n in range(60)
    ]
    with conn.transaction():
        pgoutbox.enqueue_many(conn, given)
    for lane in range(3):
        found = conn.execute(
            "SELECT payload FROM outbox WHERE ordering_key = %s ORDER BY id", [f"k{lane}"]
        )
        assert [payload for (payload,) in found] == list(range(lane, 60, 3))
