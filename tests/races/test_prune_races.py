"""The deletion of old messages beside those who work on the others."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

from pgoutbox.dispatch.finalize import finalize
from pgoutbox.dispatch.retention import prune
from pgoutbox.outcome import Bury, Release
from tests.support.leases import claim_as, enqueue, settle, state_of

if TYPE_CHECKING:
    import psycopg

    from tests.support.locks import Session

AT_ONCE = timedelta(0)


async def ids(conn: psycopg.AsyncConnection[Any]) -> list[int]:
    cursor = await conn.execute("SELECT id FROM outbox ORDER BY id")
    return [row_id for (row_id,) in await cursor.fetchall()]


async def test_claims_and_finalizes_do_not_wait_for_a_prune(
    aconn: psycopg.AsyncConnection, one: Session, two: Session
) -> None:
    await enqueue(aconn, 4)
    await finalize(one, settle(await claim_as("a", one, 2)), retried=False)
    async with one.transaction():
        assert await prune(one, keep=AT_ONCE, limit=10) == 2
        (message,) = await claim_as("b", two)
        assert (await finalize(two, settle([message]), retried=False)).lost == []
    assert await ids(aconn) == [3, 4]


async def test_a_prune_leaves_alone_what_is_being_finalized_or_claimed(
    aconn: psycopg.AsyncConnection, one: Session, two: Session
) -> None:
    await enqueue(aconn, 2)
    (message,) = await claim_as("a", one)
    async with one.transaction():
        await finalize(one, settle([message]), retried=False)
        await claim_as("b", one)
        assert await prune(two, keep=AT_ONCE, limit=10) == 0
    assert await prune(two, keep=AT_ONCE, limit=10) == 1
    assert await ids(aconn) == [2]


async def test_a_retried_finalize_of_a_message_that_is_being_pruned_was_written_and_then_unknown(
    aconn: psycopg.AsyncConnection, one: Session, two: Session
) -> None:
    await enqueue(aconn)
    batch = settle(await claim_as("a", two))
    await finalize(two, batch, retried=False)
    async with one.transaction():
        assert await prune(one, keep=AT_ONCE, limit=10) == 1
        assert (await finalize(two, batch, retried=True)).already_written == batch
    assert (await finalize(two, batch, retried=True)).unknown == batch


async def test_of_two_prunes_one_works_and_the_other_leaves_at_once(
    aconn: psycopg.AsyncConnection, one: Session, two: Session
) -> None:
    await enqueue(aconn, 4)
    await finalize(one, settle(await claim_as("a", one, 4)), retried=False)
    async with one.transaction():
        assert await prune(one, keep=AT_ONCE, limit=2) == 2
        assert await prune(two, keep=AT_ONCE, limit=2) is None
    assert await prune(two, keep=AT_ONCE, limit=10) == 2


async def test_a_prune_passes_by_rows_that_another_session_has_locked(
    aconn: psycopg.AsyncConnection, one: Session, two: Session
) -> None:
    await enqueue(aconn, 3)
    await finalize(two, settle(await claim_as("a", two, 3)), retried=False)
    async with one.transaction():
        await one.conn.execute("SELECT FROM outbox WHERE id = 1 FOR UPDATE")
        assert await prune(two, keep=AT_ONCE, limit=10) == 2
    assert await ids(aconn) == [1]


async def test_a_prune_deletes_neither_dead_nor_pending_messages(
    aconn: psycopg.AsyncConnection, one: Session, two: Session
) -> None:
    await enqueue(aconn, 3)
    dead, released, held = await claim_as("a", one, 3)
    await finalize(one, settle([dead], Bury("e")), retried=False)
    await finalize(one, settle([released], Release()), retried=False)
    assert await prune(two, keep=AT_ONCE, limit=10) == 0
    for message in (dead, released, held):
        assert await state_of(aconn, message) is not None
