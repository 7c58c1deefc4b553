"""The end of a lease against everything else that may end it."""

from __future__ import annotations

import asyncio

import psycopg
import pytest

from pgoutbox.dispatch.finalize import finalize
from pgoutbox.dispatch.sweep import reap
from pgoutbox.outcome import Bury, DeferUntil, Finish, Release, Retry, Transition
from tests.support.leases import (
    DESTINATION,
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

LIMITS = {DESTINATION: LIMIT}
STATUS_AFTER: dict[Transition, str] = {
    Finish(): "done",
    Retry(0.0, "e"): "pending",
    DeferUntil(0.0, "e"): "pending",
    Release(): "pending",
    Bury("e"): "dead",
}


async def test_a_reap_skips_what_is_being_finalized_and_finds_it_done(
    aconn: psycopg.AsyncConnection, one: Session, two: Session
) -> None:
    await enqueue(aconn)
    (message,) = await claim_as("a", one)
    await expire(aconn, [message], attempts=LIMIT)
    async with one.transaction():
        written = await finalize(one, settle([message]), retried=False)
        assert not await reap(two, LIMITS)
    assert not await reap(two, LIMITS)
    assert written.written == settle([message])
    assert await state_of(aconn, message) == State("done", None, 1, LIMIT, 0)


async def test_a_finalize_waits_for_a_reap_and_then_changes_nothing(
    aconn: psycopg.AsyncConnection, one: Session, two: Session
) -> None:
    await enqueue(aconn)
    (message,) = await claim_as("a", two)
    await expire(aconn, [message], attempts=LIMIT)
    async with one.transaction():
        assert await reap(one, LIMITS) == {DESTINATION: 1}
        late = asyncio.create_task(finalize(two, settle([message]), retried=False))
        await until_blocked(aconn, two, by=one)
    written = await late
    assert written.lost == settle([message])
    assert not written.written
    assert await state_of(aconn, message) == State("dead", None, 2, LIMIT, 0)


async def test_a_finalize_that_waited_for_a_reap_in_vain_writes_after_its_rollback(
    aconn: psycopg.AsyncConnection, one: Session, two: Session
) -> None:
    await enqueue(aconn)
    (message,) = await claim_as("a", two)
    await expire(aconn, [message], attempts=LIMIT)
    async with one.transaction() as crashed:
        await reap(one, LIMITS)
        late = asyncio.create_task(finalize(two, settle([message]), retried=False))
        await until_blocked(aconn, two, by=one)
        raise psycopg.Rollback(crashed)
    assert (await late).written == settle([message])
    assert await state_of(aconn, message) == State("done", None, 1, LIMIT, 0)


@pytest.mark.parametrize("transition", STATUS_AFTER, ids=lambda t: type(t).__name__)
async def test_a_reclaim_skips_what_is_being_finalized_and_does_not_take_it_later(
    aconn: psycopg.AsyncConnection, one: Session, two: Session, transition: Transition
) -> None:
    await enqueue(aconn)
    (message,) = await claim_as("a", one)
    await expire(aconn, [message])
    async with one.transaction():
        written = await finalize(one, settle([message], transition), retried=False)
        assert await reclaim_as("b", two) == []
    assert await reclaim_as("b", two) == []
    assert len(written.written) == 1
    after = await state_of(aconn, message)
    assert after is not None
    assert after[:3] == (STATUS_AFTER[transition], None, 1)


@pytest.mark.parametrize("transition", STATUS_AFTER, ids=lambda t: type(t).__name__)
async def test_a_finalize_waits_for_a_reclaim_and_then_changes_nothing(
    aconn: psycopg.AsyncConnection, one: Session, two: Session, transition: Transition
) -> None:
    await enqueue(aconn)
    (message,) = await claim_as("a", two)
    await expire(aconn, [message])
    async with one.transaction():
        (taken,) = await reclaim_as("b", one)
        late = asyncio.create_task(finalize(two, settle([message], transition), retried=False))
        await until_blocked(aconn, two, by=one)
    written = await late
    assert written.lost == settle([message], transition)
    assert await state_of(aconn, message) == State("processing", "b", 2, 2, 1)
    assert (await finalize(one, settle([taken]), retried=False)).lost == []


async def test_one_lost_row_does_not_take_its_neighbours_with_it(
    aconn: psycopg.AsyncConnection, one: Session, two: Session
) -> None:
    await enqueue(aconn, 3)
    messages = await claim_as("a", two, 3)
    lost = messages[1]
    await expire(aconn, [lost])
    async with one.transaction():
        assert [taken.id for taken in await reclaim_as("b", one)] == [lost.id]
        late = asyncio.create_task(finalize(two, settle(messages), retried=False))
        await until_blocked(aconn, two, by=one)
    written = await late
    assert written.written == settle([messages[0], messages[2]])
    assert written.lost == settle([lost])
    assert await state_of(aconn, lost) == State("processing", "b", 2, 2, 1)


async def test_the_second_finalize_of_a_row_waits_and_changes_nothing(
    aconn: psycopg.AsyncConnection, one: Session, two: Session
) -> None:
    await enqueue(aconn)
    (message,) = await claim_as("a", one)
    async with one.transaction():
        await finalize(one, settle([message]), retried=False)
        again = settle([message], Bury("never"))
        second = asyncio.create_task(finalize(two, again, retried=False))
        await until_blocked(aconn, two, by=one)
    assert (await second).lost == again
    assert await state_of(aconn, message) == State("done", None, 1, 1, 0)


async def test_a_retry_waits_for_the_try_whose_answer_was_lost_and_knows_it_was_written(
    aconn: psycopg.AsyncConnection, one: Session, two: Session
) -> None:
    await enqueue(aconn, 2)
    batch = settle(await claim_as("a", one, 2))
    async with one.transaction():
        await finalize(one, batch, retried=False)
        retry = asyncio.create_task(finalize(two, batch, retried=True))
        await until_blocked(aconn, two, by=one)
    written = await retry
    assert written.already_written == batch
    assert written.lost == []


async def test_a_retry_after_the_first_try_was_rolled_back_writes(
    aconn: psycopg.AsyncConnection, one: Session, two: Session
) -> None:
    await enqueue(aconn, 2)
    batch = settle(await claim_as("a", one, 2))
    async with one.transaction() as broken:
        await finalize(one, batch, retried=False)
        retry = asyncio.create_task(finalize(two, batch, retried=True))
        await until_blocked(aconn, two, by=one)
        raise psycopg.Rollback(broken)
    assert (await retry).written == batch


@pytest.mark.parametrize("newest_first", [True, False])
async def test_of_a_lost_and_a_new_lease_of_one_row_in_one_batch_only_the_new_one_is_written(
    aconn: psycopg.AsyncConnection, one: Session, *, newest_first: bool
) -> None:
    await enqueue(aconn)
    (lost,) = await claim_as("a", one)
    await expire(aconn, [lost])
    (taken,) = await reclaim_as("a", one)
    batch = [*settle([lost], Bury("never")), *settle([taken])]
    written = await finalize(one, batch[::-1] if newest_first else batch, retried=False)
    assert written.written == settle([taken])
    assert written.lost == settle([lost], Bury("never"))
    assert await state_of(aconn, taken) == State("done", None, 2, 2, 0)


async def test_locks_are_taken_in_id_order_whatever_order_was_given(
    aconn: psycopg.AsyncConnection, one: Session, two: Session
) -> None:
    """While it waits for the first row it holds none of the others."""
    await enqueue(aconn, 3)
    messages = await claim_as("a", one, 3)
    async with one.transaction():
        await one.conn.execute("SELECT FROM outbox WHERE id = %s FOR UPDATE", [messages[0].id])
        waiting = asyncio.create_task(finalize(two, settle(messages[::-1]), retried=False))
        await until_blocked(aconn, two, by=one)
        await aconn.execute(
            "SELECT FROM outbox WHERE id = ANY (%s) FOR UPDATE NOWAIT",
            [[message.id for message in messages[1:]]],
        )
    assert (await waiting).lost == []
