"""A renewal against what ends the lease it wants to extend."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from pgoutbox.dispatch.finalize import finalize
from pgoutbox.dispatch.renew import renew
from pgoutbox.dispatch.sweep import reap
from tests.support.leases import (
    DESTINATION,
    LEASE,
    LIMIT,
    State,
    claim_as,
    enqueue,
    expire,
    reclaim_as,
    settle,
    state_of,
)
from tests.support.locks import Session, until_blocked

if TYPE_CHECKING:
    import psycopg


async def has_time_left(conn: psycopg.AsyncConnection[Any]) -> list[int]:
    cursor = await conn.execute("SELECT id FROM outbox WHERE lease_until > now() ORDER BY id")
    return [row_id for (row_id,) in await cursor.fetchall()]


async def test_a_reclaim_skips_what_is_being_renewed_and_does_not_take_it_later(
    aconn: psycopg.AsyncConnection, one: Session, two: Session
) -> None:
    await enqueue(aconn)
    (message,) = await claim_as("a", one)
    await expire(aconn, [message])
    async with one.transaction():
        assert await renew(one, [message], lease=LEASE) == {message.lease}
        assert await reclaim_as("b", two) == []
    assert await reclaim_as("b", two) == []
    assert await state_of(aconn, message) == State("processing", "a", 1, 1, 0)
    assert await has_time_left(aconn) == [message.id]


async def test_a_renewal_waits_for_a_reclaim_and_keeps_only_what_is_left(
    aconn: psycopg.AsyncConnection, one: Session, two: Session
) -> None:
    await enqueue(aconn, 3)
    messages = await claim_as("a", two, 3)
    kept, lost, kept_too = messages
    await expire(aconn, [lost])
    async with one.transaction():
        await reclaim_as("b", one)
        late = asyncio.create_task(renew(two, messages, lease=LEASE))
        await until_blocked(aconn, two, by=one)
    assert await late == {kept.lease, kept_too.lease}
    assert await state_of(aconn, lost) == State("processing", "b", 2, 2, 1)


async def test_a_reap_skips_what_is_being_renewed_and_does_not_bury_it_later(
    aconn: psycopg.AsyncConnection, one: Session, two: Session
) -> None:
    await enqueue(aconn)
    (message,) = await claim_as("a", one)
    await expire(aconn, [message], attempts=LIMIT)
    async with one.transaction():
        await renew(one, [message], lease=LEASE)
        assert not await reap(two, {DESTINATION: LIMIT})
    assert not await reap(two, {DESTINATION: LIMIT})
    assert await state_of(aconn, message) == State("processing", "a", 1, LIMIT, 0)


async def test_a_renewal_waits_for_a_reap_and_keeps_nothing(
    aconn: psycopg.AsyncConnection, one: Session, two: Session
) -> None:
    await enqueue(aconn)
    (message,) = await claim_as("a", two)
    await expire(aconn, [message], attempts=LIMIT)
    async with one.transaction():
        await reap(one, {DESTINATION: LIMIT})
        late = asyncio.create_task(renew(two, [message], lease=LEASE))
        await until_blocked(aconn, two, by=one)
    assert await late == set()
    assert await state_of(aconn, message) == State("dead", None, 2, LIMIT, 0)


async def test_a_finalize_waits_for_a_renewal_of_the_same_rows_and_loses_none(
    aconn: psycopg.AsyncConnection, one: Session, two: Session
) -> None:
    await enqueue(aconn, 4)
    messages = await claim_as("a", one, 4)
    async with one.transaction():
        assert len(await renew(one, messages, lease=LEASE)) == 4
        late = asyncio.create_task(finalize(two, settle(messages[::-1]), retried=False))
        await until_blocked(aconn, two, by=one)
    written = await late
    assert written.written == settle(messages[::-1])
    assert written.lost == []
    for message in messages:
        assert await state_of(aconn, message) == State("done", None, 1, 1, 0)


async def test_a_renewal_waits_for_a_finalize_and_keeps_exactly_what_it_left(
    aconn: psycopg.AsyncConnection, one: Session, two: Session
) -> None:
    await enqueue(aconn, 4)
    messages = await claim_as("a", one, 4)
    async with one.transaction():
        await finalize(one, settle(messages[1:3]), retried=False)
        late = asyncio.create_task(renew(two, messages[::-1], lease=LEASE))
        await until_blocked(aconn, two, by=one)
    assert await late == {messages[0].lease, messages[3].lease}
    for message in messages[1:3]:
        assert await state_of(aconn, message) == State("done", None, 1, 1, 0)
    assert await has_time_left(aconn) == [messages[0].id, messages[3].id]


@pytest.mark.parametrize("statement", ["renew", "finalize"])
async def test_locks_are_taken_in_id_order_whatever_order_was_given(
    aconn: psycopg.AsyncConnection, one: Session, two: Session, statement: str
) -> None:
    """While it waits for the first row it holds none of the others."""
    await enqueue(aconn, 3)
    messages = await claim_as("a", one, 3)

    async def run() -> int:
        if statement == "renew":
            return len(await renew(two, messages[::-1], lease=LEASE))
        return len((await finalize(two, settle(messages[::-1]), retried=False)).written)

    async with one.transaction():
        await one.conn.execute("SELECT FROM outbox WHERE id = %s FOR UPDATE", [messages[0].id])
        waiting = asyncio.create_task(run())
        await until_blocked(aconn, two, by=one)
        await aconn.execute(
            "SELECT FROM outbox WHERE id = ANY (%s) FOR UPDATE NOWAIT",
            [[message.id for message in messages[1:]]],
        )
    assert await waiting == 3


async def test_a_renewal_of_a_lost_and_a_new_lease_of_one_row_keeps_the_new_one(
    aconn: psycopg.AsyncConnection, one: Session
) -> None:
    await enqueue(aconn)
    (lost,) = await claim_as("a", one)
    await expire(aconn, [lost])
    (taken,) = await reclaim_as("a", one)
    assert await renew(one, [lost, taken], lease=LEASE) == {taken.lease}
