"""A renewal against what ends the lease it wants to extend."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

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
        assert (await renew(one, [message], lease=LEASE)).kept == {message.lease}
        assert await reclaim_as("b", two) == []
    assert await reclaim_as("b", two) == []
    assert await state_of(aconn, message) == State("processing", "a", 1, 1, 0)
    assert await has_time_left(aconn) == [message.id]


async def test_a_renewal_passes_by_a_reclaim_keeps_the_rest_and_loses_the_row_once_it_is_committed(
    aconn: psycopg.AsyncConnection, one: Session, two: Session
) -> None:
    await enqueue(aconn, 3)
    messages = await claim_as("a", two, 3)
    kept, lost, kept_too = messages
    await expire(aconn, [lost])
    async with one.transaction():
        await reclaim_as("b", one)
        assert await renew(two, messages, lease=LEASE) == ({kept.lease, kept_too.lease}, set())
    assert await renew(two, messages, lease=LEASE) == ({kept.lease, kept_too.lease}, {lost.lease})
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


async def test_a_renewal_passes_by_a_reap_and_loses_the_row_once_it_is_committed(
    aconn: psycopg.AsyncConnection, one: Session, two: Session
) -> None:
    await enqueue(aconn)
    (message,) = await claim_as("a", two)
    await expire(aconn, [message], attempts=LIMIT)
    async with one.transaction():
        await reap(one, {DESTINATION: LIMIT})
        assert await renew(two, [message], lease=LEASE) == (set(), set())
    assert await renew(two, [message], lease=LEASE) == (set(), {message.lease})
    assert await state_of(aconn, message) == State("dead", None, 2, LIMIT, 0)


async def test_a_finalize_waits_for_a_renewal_of_the_same_rows_and_loses_none(
    aconn: psycopg.AsyncConnection, one: Session, two: Session
) -> None:
    await enqueue(aconn, 4)
    messages = await claim_as("a", one, 4)
    async with one.transaction():
        assert len((await renew(one, messages, lease=LEASE)).kept) == 4
        late = asyncio.create_task(finalize(two, settle(messages[::-1]), retried=False))
        await until_blocked(aconn, two, by=one)
    written = await late
    assert written.written == settle(messages[::-1])
    assert written.lost == []
    for message in messages:
        assert await state_of(aconn, message) == State("done", None, 1, 1, 0)


async def test_a_renewal_passes_by_a_finalize_and_does_not_call_its_rows_lost(
    aconn: psycopg.AsyncConnection, one: Session, two: Session
) -> None:
    await enqueue(aconn, 4)
    messages = await claim_as("a", one, 4)
    left = {messages[0].lease, messages[3].lease}
    async with one.transaction():
        written = await finalize(one, settle(messages[1:3]), retried=False)
        assert await renew(two, messages[::-1], lease=LEASE) == (left, set())
    assert written.lost == []
    for message in messages[1:3]:
        assert await state_of(aconn, message) == State("done", None, 1, 1, 0)
    assert await has_time_left(aconn) == [messages[0].id, messages[3].id]


async def test_a_renewal_passes_by_a_row_that_a_person_has_locked_and_keeps_the_others(
    aconn: psycopg.AsyncConnection, one: Session, two: Session
) -> None:
    await enqueue(aconn, 3)
    messages = await claim_as("a", two, 3)
    locked, *others = messages
    async with one.transaction():
        await one.conn.execute("SELECT FROM outbox WHERE id = %s FOR UPDATE", [locked.id])
        renewal = await renew(two, messages, lease=LEASE)
        assert renewal == ({message.lease for message in others}, set())
    assert len((await renew(two, messages, lease=LEASE)).kept) == 3


async def test_a_renewal_of_a_lost_and_a_new_lease_of_one_row_keeps_the_new_one(
    aconn: psycopg.AsyncConnection, one: Session
) -> None:
    await enqueue(aconn)
    (lost,) = await claim_as("a", one)
    await expire(aconn, [lost])
    (taken,) = await reclaim_as("a", one)
    assert await renew(one, [lost, taken], lease=LEASE) == ({taken.lease}, {lost.lease})
