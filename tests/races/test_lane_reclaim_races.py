"""Lanes whose lease ran out: beside their late owner, and between two that want to have them."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from pgoutbox.dispatch.finalize import finalize
from pgoutbox.dispatch.renew import renew
from pgoutbox.dispatch.sweep import reap
from pgoutbox.outcome import Finish, Release
from tests.support.leases import (
    DESTINATION,
    LEASE,
    LIMIT,
    State,
    claim_lanes_as,
    enqueue_lane,
    expire,
    ids,
    reclaim_as,
    reclaim_heads_as,
    settle,
    states_of,
)
from tests.support.locks import (
    gate,
    read_clock_at_gate,
    until_blocked,
    write_second_row_at_gate,
)

if TYPE_CHECKING:
    import psycopg

    from pgoutbox.message import ClaimedMessage
    from tests.support.locks import Session

HEAD_OF_B = State("processing", "b", 2, 2, 1)
GIVEN_BACK = State("pending", None, 2, 0, 0)
STILL_A = State("processing", "a", 1, 1, 0)


async def expired_lane(
    aconn: psycopg.AsyncConnection[Any], owner: Session, count: int = 3
) -> list[ClaimedMessage]:
    """A run of ``a`` whose lease is over."""
    await enqueue_lane(aconn, "a", count)
    runs = await claim_lanes_as("a", owner)
    await expire(aconn, runs.messages)
    return runs.messages


async def test_a_reclaim_takes_the_head_and_gives_back_the_rest_of_the_run(
    aconn: psycopg.AsyncConnection, one: Session, two: Session
) -> None:
    messages = await expired_lane(aconn, one)
    waiting = await enqueue_lane(aconn, "a", 2)
    # Those that wait are not worth a claim while those before them are somebody's.
    assert (await claim_lanes_as("b", two)).lanes == {}
    reclaimed = await reclaim_heads_as("b", two)
    assert ids(reclaimed) == ids(messages)[:1]
    after = [State("pending", None, 0, 0, 0)] * 2
    assert await states_of(aconn, "a") == [HEAD_OF_B, GIVEN_BACK, GIVEN_BACK, *after]
    assert (await claim_lanes_as("c", one)).lanes == {}
    await finalize(two, settle(reclaimed), retried=False)
    assert ids((await claim_lanes_as("c", one)).messages) == ids(messages)[1:] + waiting


async def test_head_and_rest_of_an_expired_run_change_hands_at_once(
    aconn: psycopg.AsyncConnection, dsn: str, one: Session, two: Session
) -> None:
    await expired_lane(aconn, one)
    async with gate(dsn) as shut:
        await write_second_row_at_gate(aconn)
        reclaiming = asyncio.create_task(reclaim_heads_as("b", two))
        await until_blocked(aconn, two, by=shut)
        assert await states_of(aconn, "a") == [STILL_A] * 3
        assert (await claim_lanes_as("c", one)).lanes == {}
        assert await reclaim_heads_as("c", one) == []
    await reclaiming
    assert await states_of(aconn, "a") == [HEAD_OF_B, GIVEN_BACK, GIVEN_BACK]


async def test_two_reclaims_never_share_a_lane(
    aconn: psycopg.AsyncConnection, one: Session, two: Session
) -> None:
    messages = await expired_lane(aconn, one)
    async with two.transaction():
        assert ids(await reclaim_heads_as("b", two)) == ids(messages)[:1]
        # It passes by and does not wait.
        assert await reclaim_heads_as("c", one) == []
    assert await reclaim_heads_as("c", one) == []
    assert await states_of(aconn, "a") == [HEAD_OF_B, GIVEN_BACK, GIVEN_BACK]


async def test_a_reclaim_that_saw_the_lane_before_another_one_took_it_takes_nothing(
    aconn: psycopg.AsyncConnection, dsn: str, one: Session, two: Session
) -> None:
    await expired_lane(aconn, one)
    async with gate(dsn) as shut:
        await read_clock_at_gate(two)
        late = asyncio.create_task(reclaim_heads_as("late", two))
        await until_blocked(aconn, two, by=shut)
        await reclaim_heads_as("b", one)
    assert await late == []
    assert await states_of(aconn, "a") == [HEAD_OF_B, GIVEN_BACK, GIVEN_BACK]


async def test_a_reclaim_that_saw_the_lane_before_it_was_renewed_takes_nothing(
    aconn: psycopg.AsyncConnection, dsn: str, one: Session, two: Session
) -> None:
    messages = await expired_lane(aconn, one)
    async with gate(dsn) as shut:
        await read_clock_at_gate(two)
        late = asyncio.create_task(reclaim_heads_as("late", two))
        await until_blocked(aconn, two, by=shut)
        await renew(one, messages, lease=LEASE)
    assert await late == []
    assert await states_of(aconn, "a") == [STILL_A] * 3


async def test_a_reclaim_passes_by_a_lane_that_its_owner_is_renewing(
    aconn: psycopg.AsyncConnection, one: Session, two: Session
) -> None:
    messages = await expired_lane(aconn, one)
    async with one.transaction():
        renewal = await renew(one, messages, lease=LEASE)
        assert await reclaim_heads_as("b", two) == []
    assert renewal.kept == {message.lease for message in messages}
    assert await reclaim_heads_as("b", two) == []
    assert await states_of(aconn, "a") == [STILL_A] * 3


async def test_a_renewal_after_a_reclaim_finds_the_whole_run_lost(
    aconn: psycopg.AsyncConnection, one: Session, two: Session
) -> None:
    messages = await expired_lane(aconn, one)
    async with two.transaction():
        await reclaim_heads_as("b", two)
        # Nothing is renewed behind the head that is being taken.
        assert (await renew(one, messages, lease=LEASE)).kept == set()
    renewal = await renew(one, messages, lease=LEASE)
    assert renewal.lost == {message.lease for message in messages}


async def test_a_late_owner_of_a_reclaimed_lane_can_write_no_row_of_its_run(
    aconn: psycopg.AsyncConnection, one: Session, two: Session
) -> None:
    messages = await expired_lane(aconn, one)
    async with two.transaction():
        await reclaim_heads_as("b", two)
        writing = asyncio.create_task(finalize(one, settle(messages), retried=False))
        await until_blocked(aconn, one, by=two)
    assert ids(settled.message for settled in (await writing).lost) == ids(messages)
    assert await states_of(aconn, "a") == [HEAD_OF_B, GIVEN_BACK, GIVEN_BACK]


async def test_a_late_owner_that_writes_first_keeps_its_results_and_its_order(
    aconn: psycopg.AsyncConnection, one: Session, two: Session
) -> None:
    messages = await expired_lane(aconn, one)
    async with one.transaction():
        await finalize(one, settle(messages[:1], Finish()), retried=False)
        # The head is being written, and the others are nobody's to publish before it.
        assert await reclaim_heads_as("b", two) == []
    assert ids((await claim_lanes_as("b", two)).messages) == ids(messages)[1:]


async def test_what_expired_behind_a_free_head_goes_back_and_the_lane_goes_on_in_order(
    aconn: psycopg.AsyncConnection, one: Session, two: Session
) -> None:
    lane = await enqueue_lane(aconn, "a", 3)
    messages = (await claim_lanes_as("a", one)).messages
    await finalize(one, settle(messages[:1], Release()), retried=False)
    await expire(aconn, messages[1:])
    assert (await claim_lanes_as("b", two)).lanes == {}
    assert await reclaim_heads_as("b", two) == []
    assert ids((await claim_lanes_as("b", two)).messages) == lane


async def test_a_reclaim_leaves_what_this_worker_holds(
    aconn: psycopg.AsyncConnection, one: Session
) -> None:
    messages = await expired_lane(aconn, one)
    assert await reclaim_heads_as("a", one, held=ids(messages)) == []
    assert await states_of(aconn, "a") == [STILL_A] * 3


async def test_a_reclaim_gives_back_nothing_that_this_worker_holds(
    aconn: psycopg.AsyncConnection, one: Session
) -> None:
    messages = await expired_lane(aconn, one)
    await reclaim_heads_as("b", one, held=ids(messages)[1:2])
    assert await states_of(aconn, "a") == [HEAD_OF_B, STILL_A, GIVEN_BACK]


async def test_a_suspect_head_is_reclaimed_alone(
    aconn: psycopg.AsyncConnection, one: Session, two: Session
) -> None:
    for key in "abcd":
        await enqueue_lane(aconn, key, 2)
    runs = await claim_lanes_as("gone", one)
    await expire(aconn, runs.messages)
    suspects = [runs.lanes[key][0].id for key in "abc"]
    await aconn.execute("UPDATE outbox SET reclaims = 1 WHERE id = ANY (%s)", [suspects])
    # Those behind a suspect go back in any case: they have done nothing.
    assert ids(await reclaim_heads_as("b", two, suspect_allowed=False)) == ids(runs.lanes["d"][:1])
    assert [(await states_of(aconn, key))[1] for key in "abcd"] == [GIVEN_BACK] * 4
    for suspect in suspects:
        assert ids(await reclaim_heads_as("b", two)) == [suspect]
    assert await reclaim_heads_as("b", two) == []


async def test_neither_reclaim_takes_what_is_the_other_ones(
    aconn: psycopg.AsyncConnection, one: Session, two: Session
) -> None:
    messages = await expired_lane(aconn, one)
    async with two.transaction():
        await reclaim_heads_as("b", two)
        assert await reclaim_as("c", one, 10) == []
    await expire(aconn, messages[:1])
    assert await reclaim_as("c", one, 10) == []
    await aconn.execute("UPDATE outbox SET ordering_key = NULL WHERE id = %s", [messages[0].id])
    assert await reclaim_heads_as("c", one) == []
    assert ids(await reclaim_as("c", one, 10)) == ids(messages)[:1]


async def test_a_head_at_its_limit_is_left_to_the_reap_and_what_is_behind_it_goes_back(
    aconn: psycopg.AsyncConnection, one: Session, two: Session
) -> None:
    messages = await expired_lane(aconn, one)
    await expire(aconn, messages[:1], attempts=LIMIT)
    assert await reclaim_heads_as("b", two) == []
    assert await states_of(aconn, "a") == [STILL_A._replace(attempts=LIMIT), *[GIVEN_BACK] * 2]


@pytest.mark.parametrize("skip", [True, False])
async def test_the_reap_buries_the_head_of_a_lane_alone_and_gives_back_the_rest(
    aconn: psycopg.AsyncConnection, one: Session, two: Session, *, skip: bool
) -> None:
    messages = await expired_lane(aconn, one)
    await expire(aconn, messages, attempts=LIMIT)
    async with two.transaction():
        buried = await reap(two, {DESTINATION: LIMIT}, skip=[DESTINATION] if skip else ())
        assert (await reap(one, {DESTINATION: LIMIT})).total() == 0
    assert buried.total() == 1
    rest = State("pending", None, 2, LIMIT - 1, 0)
    assert await states_of(aconn, "a") == [State("dead", None, 2, LIMIT, 0), rest, rest]
    # Where the dead leave their lane it goes on, and elsewhere it waits.
    expected = ids(messages)[1:] if skip else []
    assert ids((await claim_lanes_as("c", one)).messages) == expected


async def test_a_reclaim_leaves_a_lane_whose_head_is_being_buried_and_gives_it_nothing_to_do(
    aconn: psycopg.AsyncConnection, one: Session, two: Session
) -> None:
    messages = await expired_lane(aconn, one)
    await expire(aconn, messages[:1], attempts=LIMIT)
    async with two.transaction():
        await reap(two, {DESTINATION: LIMIT})
        assert await reclaim_heads_as("c", one) == []
    assert await reclaim_heads_as("c", one) == []
    statuses = [state.status for state in await states_of(aconn, "a")]
    assert statuses == ["dead", "pending", "pending"]


async def test_the_reap_leaves_a_lane_whose_head_is_being_renewed(
    aconn: psycopg.AsyncConnection, one: Session, two: Session
) -> None:
    messages = await expired_lane(aconn, one)
    await expire(aconn, messages, attempts=LIMIT)
    async with one.transaction():
        await renew(one, messages, lease=LEASE)
        assert (await reap(two, {DESTINATION: LIMIT})).total() == 0
    assert await states_of(aconn, "a") == [STILL_A._replace(attempts=LIMIT)] * 3


async def test_the_reap_leaves_what_this_worker_holds(
    aconn: psycopg.AsyncConnection, one: Session
) -> None:
    messages = await expired_lane(aconn, one)
    await expire(aconn, messages, attempts=LIMIT)
    # The head, and with it those that have it before them.
    await reap(one, {DESTINATION: LIMIT}, held=ids(messages)[:1])
    assert await states_of(aconn, "a") == [STILL_A._replace(attempts=LIMIT)] * 3
    # And what is behind a head that is buried.
    await reap(one, {DESTINATION: LIMIT}, held=ids(messages)[1:2])
    states = await states_of(aconn, "a")
    assert [state.status for state in states] == ["dead", "processing", "pending"]
    assert states[1] == STILL_A._replace(attempts=LIMIT)
