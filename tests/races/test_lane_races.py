"""Claims of ordered messages beside one another, and beside what changes under their eyes."""

from __future__ import annotations

import asyncio
import contextlib
from collections import defaultdict
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from pgoutbox.dispatch.finalize import finalize
from pgoutbox.dispatch.finalizer import Finalizer
from pgoutbox.dispatch.flight import InFlight
from pgoutbox.outcome import DeferUntil, Finish, Release, Retry, Transition
from tests.support.leases import (
    State,
    claim_as,
    claim_lanes_as,
    enqueue_lane,
    ids,
    settle,
    states_of,
)
from tests.support.locks import (
    gate,
    open_session,
    read_clock_at_gate,
    until_blocked,
    write_second_row_at_gate,
)

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from pgoutbox.dispatch.lanes import Runs
    from pgoutbox.events import Settled
    from pgoutbox.message import ClaimedMessage
    from tests.support.locks import Session

PENDING = State("pending", None, 0, 0, 0)


def settled_as(messages: Sequence[ClaimedMessage], *transitions: Transition) -> list[Settled]:
    """Each message with its own transition."""
    return [
        settled._replace(transition=transition)
        for settled, transition in zip(settle(messages), transitions, strict=True)
    ]


async def test_two_claims_never_share_a_lane(
    aconn: psycopg.AsyncConnection, one: Session, two: Session
) -> None:
    await enqueue_lane(aconn, "a", 5)
    async with one.transaction():
        first = await claim_lanes_as("a", one, run=2)
        # It passes by and does not wait.
        assert (await claim_lanes_as("b", two)).lanes == {}
    assert len(first.messages) == 2
    assert (await claim_lanes_as("b", two)).lanes == {}
    owners = [state.owner for state in await states_of(aconn, "a")]
    assert owners == ["a", "a", None, None, None]


async def test_two_claims_take_different_lanes_without_waiting_for_each_other(
    aconn: psycopg.AsyncConnection, one: Session, two: Session
) -> None:
    for key in "abcd":
        await enqueue_lane(aconn, key, 2)
    async with one.transaction():
        first = await claim_lanes_as("a", one, 2)
        # It met only lanes that are being taken, and goes on behind them.
        met = await claim_lanes_as("b", two, 2)
        second = await claim_lanes_as("b", two, 2, cursor=met.cursor)
    assert met.lanes == {}
    assert (sorted(first.lanes), sorted(second.lanes)) == (["a", "b"], ["c", "d"])


async def test_what_a_rolled_back_claim_had_taken_is_claimed_as_a_whole(
    aconn: psycopg.AsyncConnection, one: Session, two: Session
) -> None:
    lane = await enqueue_lane(aconn, "a", 3)
    async with one.transaction() as crashed:
        await claim_lanes_as("a", one)
        assert (await claim_lanes_as("b", two)).lanes == {}
        raise psycopg.Rollback(crashed)
    assert ids((await claim_lanes_as("b", two)).messages) == lane
    assert await states_of(aconn, "a") == [State("processing", "b", 1, 1, 0)] * 3


async def test_a_run_ends_before_a_row_that_somebody_has_locked(
    aconn: psycopg.AsyncConnection, one: Session, two: Session
) -> None:
    lane = await enqueue_lane(aconn, "a", 5)
    async with one.transaction():
        await one.conn.execute("SELECT FROM outbox WHERE id = %s FOR UPDATE", [lane[2]])
        runs = await claim_lanes_as("b", two)
    assert ids(runs.messages) == lane[:2]
    assert (await states_of(aconn, "a"))[2:] == [PENDING] * 3


async def test_a_lane_whose_head_somebody_has_locked_is_left_alone(
    aconn: psycopg.AsyncConnection, one: Session, two: Session
) -> None:
    (head, *_) = await enqueue_lane(aconn, "a", 3)
    async with one.transaction():
        await one.conn.execute("SELECT FROM outbox WHERE id = %s FOR UPDATE", [head])
        assert (await claim_lanes_as("b", two)).lanes == {}
    assert await states_of(aconn, "a") == [PENDING] * 3


@contextlib.asynccontextmanager
async def claimed_late(
    aconn: psycopg.AsyncConnection, dsn: str, session: Session, **asked: Any
) -> AsyncIterator[asyncio.Task[Runs]]:
    """A claim that took its snapshot before the block and locks its rows after it."""
    async with gate(dsn) as shut:
        await read_clock_at_gate(session)
        late = asyncio.create_task(claim_lanes_as("late", session, **asked))
        await until_blocked(aconn, session, by=shut)
        yield late
    await late


# However a claim comes to a lane: by its walk, by what is newly due, and by what it knows already.
WAYS = {
    "walk": {"steps": 100},
    "fresh": {"steps": 0, "fresh": 100},
    "hot": {"steps": 0, "hot": {"a": 1}, "tried": ["a"]},
}
ways = pytest.mark.parametrize("asked", WAYS.values(), ids=WAYS)


@ways
async def test_a_claim_that_saw_the_lane_before_another_one_took_it_takes_nothing(
    aconn: psycopg.AsyncConnection, dsn: str, one: Session, two: Session, asked: dict[str, Any]
) -> None:
    lane = await enqueue_lane(aconn, "a", 3, due="-1 s")
    async with claimed_late(aconn, dsn, two, **asked) as late:
        assert ids((await claim_lanes_as("a", one)).messages) == lane
    assert late.result().lanes == {}
    assert await states_of(aconn, "a") == [State("processing", "a", 1, 1, 0)] * 3


@ways
async def test_a_claim_that_saw_the_lane_before_its_head_was_put_off_takes_nothing(
    aconn: psycopg.AsyncConnection, dsn: str, one: Session, two: Session, asked: dict[str, Any]
) -> None:
    await enqueue_lane(aconn, "a", 3, due="-1 s")
    async with claimed_late(aconn, dsn, two, **asked) as late:
        runs = await claim_lanes_as("a", one)
        failed = settled_as(runs.messages, Retry(3600.0, "busy"), Release(), Release())
        await finalize(one, failed, retried=False)
    assert late.result().lanes == {}
    assert [state.status for state in await states_of(aconn, "a")] == ["pending"] * 3


async def test_a_claim_that_saw_the_lane_before_its_head_was_done_takes_nothing_out_of_turn(
    aconn: psycopg.AsyncConnection, dsn: str, one: Session, two: Session
) -> None:
    await enqueue_lane(aconn, "a", 3)
    async with claimed_late(aconn, dsn, two) as late:
        runs = await claim_lanes_as("a", one)
        await finalize(one, settled_as(runs.messages[:1], Finish()), retried=False)
    assert late.result().lanes == {}
    assert [state.owner for state in await states_of(aconn, "a")] == [None, "a", "a"]


async def test_a_claim_that_saw_the_lane_before_its_second_row_was_put_off_takes_the_first_only(
    aconn: psycopg.AsyncConnection, dsn: str, one: Session, two: Session
) -> None:
    lane = await enqueue_lane(aconn, "a", 3)
    async with claimed_late(aconn, dsn, two) as late:
        runs = await claim_lanes_as("a", one)
        back = settled_as(runs.messages, Release(), DeferUntil(3600.0, "later"), Release())
        await finalize(one, back, retried=False)
    assert ids(late.result().messages) == lane[:1]


async def test_a_claim_that_saw_the_lane_before_another_one_took_it_never_takes_a_live_lease(
    aconn: psycopg.AsyncConnection, dsn: str, one: Session, two: Session
) -> None:
    lane = await enqueue_lane(aconn, "a", 3)
    async with claimed_late(aconn, dsn, two) as late:
        runs = await claim_lanes_as("a", one)
        # The worst that an owner can do: the head alone, and at once.
        await finalize(one, settled_as(runs.messages[:1], Release()), retried=False)
    assert ids(late.result().messages) == lane[:1]
    assert (await states_of(aconn, "a"))[1:] == [State("processing", "a", 1, 1, 0)] * 2


async def test_a_failure_and_what_waits_behind_it_become_visible_at_once(
    aconn: psycopg.AsyncConnection, dsn: str, one: Session, two: Session
) -> None:
    lane = await enqueue_lane(aconn, "a", 3)
    runs = await claim_lanes_as("a", one)
    finalizer = Finalizer(one, InFlight(10), lambda _: None)
    for settled in settled_as(runs.messages, Retry(0.0, "busy"), Release(), Release()):
        finalizer.add(settled)
    async with gate(dsn) as shut:
        await write_second_row_at_gate(aconn)
        writing = asyncio.create_task(finalizer.run())
        await until_blocked(aconn, one, by=shut)
        # The head is written by now, and nobody can see it.
        assert {state.status for state in await states_of(aconn, "a")} == {"processing"}
        assert (await claim_lanes_as("b", two)).lanes == {}
    await finalizer.idle()
    writing.cancel()
    assert ids((await claim_lanes_as("b", two)).messages) == lane


async def test_a_lane_of_which_its_owner_still_holds_something_is_left_alone(
    aconn: psycopg.AsyncConnection, one: Session, two: Session
) -> None:
    lane = await enqueue_lane(aconn, "a", 3)
    runs = await claim_lanes_as("a", one)
    await finalize(one, settled_as(runs.messages[:1], Release()), retried=False)
    # Neither as a run nor its free head alone.
    for run in (1, 10):
        assert (await claim_lanes_as("b", two, run=run)).lanes == {}
    await finalize(one, settled_as(runs.messages[1:], Release(), Release()), retried=False)
    assert ids((await claim_lanes_as("b", two)).messages) == lane


async def test_a_message_that_commits_late_in_a_lane_comes_after_those_before_it(
    aconn: psycopg.AsyncConnection, dsn: str, one: Session
) -> None:
    async with (
        open_session(dsn, as_given=True) as producer,
        open_session(dsn, as_given=True) as other,
    ):
        async with producer.transaction():
            first = await enqueue_lane(producer.conn, "a")
            second = asyncio.create_task(enqueue_lane(other.conn, "a"))
            await until_blocked(aconn, other, by=producer)
        runs = await claim_lanes_as("a", one)
        assert ids(runs.messages) == first + await second


async def test_the_unordered_claim_passes_by_every_lane(
    aconn: psycopg.AsyncConnection, one: Session, two: Session
) -> None:
    await enqueue_lane(aconn, "a", 3)
    async with one.transaction():
        await claim_lanes_as("a", one, run=1)
        assert await claim_as("b", two, 10) == []
    assert await claim_as("b", two, 10) == []


WORKERS = 6
LANES = 12
LENGTH = 40


class Busy:
    """Claims runs, and finishes most of each; what is left over goes back."""

    def __init__(self, name: str, session: Session, done: dict[str, list[int]]) -> None:
        self._name = name
        self._session = session
        self._done = done

    async def run(self, total: int) -> None:
        number = 0
        while sum(map(len, self._done.values())) < total:
            number += 1
            runs = await claim_lanes_as(self._name, self._session, 3, run=number % 5 + 1)
            batch: list[Settled] = []
            for key, messages in runs.lanes.items():
                finished = max(len(messages) - number % 2, 1)
                self._done[key] += ids(messages[:finished])
                back = len(messages) - finished
                batch += settled_as(messages, *[Finish()] * finished, *[Release()] * back)
            written = await finalize(self._session, batch, retried=False)
            assert written.lost == []


async def test_workers_that_claim_side_by_side_finish_every_lane_in_order_and_once(
    aconn: psycopg.AsyncConnection, dsn: str
) -> None:
    lanes = {f"lane {n}": await enqueue_lane(aconn, f"lane {n}", LENGTH) for n in range(LANES)}
    done: dict[str, list[int]] = defaultdict(list)
    async with AsyncExitStack() as stack:
        sessions = [await stack.enter_async_context(open_session(dsn)) for _ in range(WORKERS)]
        async with asyncio.TaskGroup() as group:
            for number, session in enumerate(sessions):
                group.create_task(Busy(f"w{number}", session, done).run(LANES * LENGTH))
    assert done == lanes
