"""What a reclaim of lanes must still leave alone."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from tests.support.leases import (
    LIMIT,
    State,
    claim_lanes_as,
    enqueue_lane,
    expire,
    ids,
    reclaim_heads_as,
    states_of,
)
from tests.support.locks import gate, read_clock_at_gate, until_blocked

if TYPE_CHECKING:
    import psycopg

    from pgoutbox.message import ClaimedMessage
    from tests.support.locks import Session

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


async def test_a_reclaim_leaves_a_head_that_this_worker_holds_though_more_of_its_lane_expired(
    aconn: psycopg.AsyncConnection, one: Session
) -> None:
    messages = await expired_lane(aconn, one)
    assert await reclaim_heads_as("a", one, held=ids(messages)[:1]) == []
    assert await states_of(aconn, "a") == [STILL_A, GIVEN_BACK, GIVEN_BACK]


async def test_a_reclaim_that_saw_the_head_before_its_last_attempt_was_spent_leaves_it_to_the_reap(
    aconn: psycopg.AsyncConnection, dsn: str, one: Session, two: Session
) -> None:
    messages = await expired_lane(aconn, one)
    await expire(aconn, messages[:1], attempts=LIMIT - 1)
    async with gate(dsn) as shut:
        await read_clock_at_gate(two)
        late = asyncio.create_task(reclaim_heads_as("late", two))
        await until_blocked(aconn, two, by=shut)
        await expire(aconn, await reclaim_heads_as("b", one))
    assert await late == []
    assert (await states_of(aconn, "a"))[0].attempts == LIMIT
