"""Two claims, and a claim beside somebody who sits on the oldest rows."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import psycopg

from pgoutbox.dispatch.finalize import finalize
from pgoutbox.outcome import Release, Retry
from tests.support.leases import State, claim_as, enqueue, expire, reclaim_as, settle, state_of

if TYPE_CHECKING:
    from tests.support.locks import Session


async def test_two_claims_take_different_messages_without_waiting_for_each_other(
    aconn: psycopg.AsyncConnection, one: Session, two: Session
) -> None:
    await enqueue(aconn, 6)
    async with one.transaction():
        first = await claim_as("a", one, 3)
        second = await claim_as("b", two, 3)
    assert [message.id for message in first] == [1, 2, 3]
    assert [message.id for message in second] == [4, 5, 6]
    assert await claim_as("c", one, 3) == []


async def test_what_a_rolled_back_claim_had_taken_is_claimed_with_the_same_version(
    aconn: psycopg.AsyncConnection, one: Session, two: Session
) -> None:
    await enqueue(aconn)
    async with one.transaction() as crashed:
        await claim_as("a", one)
        assert await claim_as("b", two) == []
        raise psycopg.Rollback(crashed)
    (message,) = await claim_as("b", two)
    assert await state_of(aconn, message) == State("processing", "b", 1, 1, 0)


async def test_two_reclaims_take_different_messages_without_waiting_for_each_other(
    aconn: psycopg.AsyncConnection, one: Session, two: Session
) -> None:
    await enqueue(aconn, 4)
    await expire(aconn, await claim_as("gone", one, 4))
    async with one.transaction():
        first = await reclaim_as("a", one, 2)
        second = await reclaim_as("b", two, 4)
    assert len(first) == len(second) == 2
    assert {message.id for message in (*first, *second)} == {1, 2, 3, 4}


async def test_a_claim_passes_by_rows_that_another_session_has_locked_within_100_ms(
    aconn: psycopg.AsyncConnection, one: Session, two: Session
) -> None:
    await enqueue(aconn, 10)
    seconds = []
    async with one.transaction():
        await one.conn.execute("SELECT FROM outbox ORDER BY id LIMIT 5 FOR UPDATE")
        for expected in (6, 7, 8, 9, 10):
            started = time.monotonic()
            (message,) = await claim_as("b", two)
            seconds.append(time.monotonic() - started)
            assert message.id == expected
        assert await claim_as("b", two) == []
    # The quickest of five: a busy machine delays one, a wait for a lock would hold up each.
    assert min(seconds) < 0.1
    assert [message.id for message in await claim_as("b", two, 9)] == [1, 2, 3, 4, 5]


async def test_a_claim_takes_a_released_message_only_after_the_release_is_committed(
    aconn: psycopg.AsyncConnection, one: Session, two: Session
) -> None:
    await enqueue(aconn)
    (message,) = await claim_as("a", one)
    async with one.transaction():
        await finalize(one, settle([message], Release()), retried=False)
        assert await claim_as("b", two) == []
    (again,) = await claim_as("b", two)
    assert (again.id, again.lease_version, again.attempts) == (message.id, 2, 1)


async def test_a_claim_leaves_alone_what_a_retry_has_put_off(
    aconn: psycopg.AsyncConnection, one: Session, two: Session
) -> None:
    await enqueue(aconn)
    (message,) = await claim_as("a", one)
    async with one.transaction():
        await finalize(one, settle([message], Retry(60.0, "later")), retried=False)
        assert await claim_as("b", two) == []
    assert await claim_as("b", two) == []
    assert await state_of(aconn, message) == State("pending", None, 1, 1, 0)
