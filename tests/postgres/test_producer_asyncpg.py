"""What is asyncpg's own: codecs, pools, transactions begun by hand, statement caches."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, assert_type
from uuid import UUID

import asyncpg
import pytest

from pgoutbox import InvalidMessage, Message, NotInTransaction
from pgoutbox.producer.asyncpg import enqueue, enqueue_many
from tests.support.producing import asyncpg_options

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    import psycopg

AT = datetime(2099, 7, 1, 12, 0, 0, 123456, tzinfo=UTC)
GOOD = Message(
    aggregate_type="order",
    aggregate_id="42",
    event_type="OrderPaid",
    payload={"n": 1},
    headers={"tenant": "t1"},
    message_id=UUID(int=1),
    available_at=AT,
)


@pytest.fixture
async def business(dsn: str) -> AsyncIterator[Any]:
    connection = await asyncpg.connect(**asyncpg_options(dsn))
    yield connection
    await connection.close()


def stored(conn: psycopg.Connection[Any]) -> list[tuple[Any, ...]]:
    return conn.execute(
        "SELECT message_id, payload, body, headers, available_at FROM outbox ORDER BY id"
    ).fetchall()


EXPECTED = (UUID(int=1), {"n": 1}, None, {"tenant": "t1"}, AT)


def refuse(value: object) -> str:
    raise AssertionError(f"the application's codec was asked to encode {value!r}")


@pytest.mark.parametrize("encoder", [json.dumps, refuse])
async def test_the_codecs_of_the_application_make_no_difference(
    conn: psycopg.Connection, business: Any, encoder: Any
) -> None:
    for name in ("jsonb", "json", "uuid", "timestamptz"):
        await business.set_type_codec(
            name, schema="pg_catalog", encoder=encoder, decoder=json.loads
        )
    async with business.transaction():
        await enqueue(business, GOOD)
        keyed = replace(GOOD, message_id=None, dedup_key="d")
        [other] = await enqueue_many(business, [keyed])
    assert stored(conn) == [EXPECTED, (other, *EXPECTED[1:])]


async def test_a_connection_that_a_pool_lends_is_one(conn: psycopg.Connection, dsn: str) -> None:
    pool: Any
    async with asyncpg.create_pool(**asyncpg_options(dsn), min_size=1, max_size=1) as pool:
        async with pool.acquire() as lent:
            with pytest.raises(NotInTransaction, match=r"async with conn\.transaction\(\)"):
                _ = enqueue(lent, GOOD)
            async with lent.transaction():
                await enqueue(lent, GOOD)
        with pytest.raises(TypeError, match=r"not asyncpg\.pool\.Pool: .* pool\.acquire\(\)"):
            _ = enqueue_many(pool, [GOOD])
    assert stored(conn) == [EXPECTED]


async def test_the_message_is_checked_at_once_and_inserted_when_awaited(
    conn: psycopg.Connection, business: Any
) -> None:
    async with business.transaction():
        with pytest.raises(InvalidMessage):
            _ = enqueue(business, replace(GOOD, event_type=""))
        payload = {"n": 1}
        pending = enqueue(business, replace(GOOD, payload=payload))
        payload["n"] = 2
        assert_type(await pending, UUID)
    assert stored(conn) == [EXPECTED]


async def test_a_transaction_begun_by_hand_counts_as_one(
    conn: psycopg.Connection, business: Any
) -> None:
    await business.execute("BEGIN")
    await enqueue(business, GOOD)
    await business.execute("COMMIT")
    with pytest.raises(NotInTransaction):
        _ = enqueue(business, GOOD)
    assert stored(conn) == [EXPECTED]


async def test_it_works_without_a_cache_of_statements_as_behind_a_pooler(
    conn: psycopg.Connection, dsn: str
) -> None:
    business = await asyncpg.connect(**asyncpg_options(dsn), statement_cache_size=0)
    try:
        async with business.transaction():
            for number in (1, 2):
                await enqueue(business, replace(GOOD, message_id=UUID(int=number)))
                await enqueue_many(business, [replace(GOOD, message_id=None, dedup_key="d")])
    finally:
        await business.close()
    assert len(stored(conn)) == 3
