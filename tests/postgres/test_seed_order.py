from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any

import pytest

from pgoutbox.dispatch.finalize import finalize
from pgoutbox.dispatch.lanes import Asked, claim_runs
from pgoutbox.errors import RetryableError
from pgoutbox.events import Claimed
from pgoutbox.outcome import Finish
from tests.support.dispatching import (
    Scripted,
    database,
    dispatching,
    settled,
    statuses,
    to,
)
from tests.support.outbox_rows import fill, insert

if TYPE_CHECKING:
    import psycopg

    from pgoutbox.database.pool import Database
    from pgoutbox.message import ClaimedMessage


def x_three_and_y_two(conn: psycopg.Connection[Any]) -> tuple[list[int], list[int]]:
    """The ids of three rows of one lane and two of another, mixed."""
    ids: defaultdict[str, list[int]] = defaultdict(list)
    for key in "XYXYX":
        ids[key].append(insert(conn, ordering_key=key))
    return ids["X"], ids["Y"]


async def claimed_runs(db: Database, run: int) -> dict[str, list[ClaimedMessage]]:
    """What a claim of up to ten lanes brings, with runs of that length."""
    asked = Asked("default", lanes=10, rows=100, run=run)
    return (await claim_runs(db, asked, owner="a", lease=30.0)).lanes


async def test_the_first_claim_takes_the_head_of_each_lane_and_the_next_follows_once_it_is_done(
    dsn: str, conn: psycopg.Connection
) -> None:
    x, y = x_three_and_y_two(conn)
    async with database(dsn) as db:
        heads = await claimed_runs(db, run=1)
        assert ids_of(heads) == {"X": x[:1], "Y": y[:1]}
        assert await claimed_runs(db, run=1) == {}
        await finalize(db, [settled(heads["X"][0], Finish())], retried=False)
        followers = await claimed_runs(db, run=1)
        assert ids_of(followers) == {"X": x[1:2]}
        done = [settled(message, Finish()) for message in (heads["Y"][0], followers["X"][0])]
        await finalize(db, done, retried=False)
        assert ids_of(await claimed_runs(db, run=1)) == {"X": x[2:], "Y": y[1:]}


@pytest.mark.parametrize("run", [2, 3, 100])
async def test_a_claim_of_runs_takes_the_front_of_each_lane_and_nothing_while_that_is_held(
    dsn: str, conn: psycopg.Connection, run: int
) -> None:
    x, y = x_three_and_y_two(conn)
    async with database(dsn) as db:
        assert ids_of(await claimed_runs(db, run)) == {"X": x[:run], "Y": y[:run]}
        assert await claimed_runs(db, run) == {}


async def test_while_a_head_is_being_published_nobody_else_of_its_lane_is(
    dsn: str, conn: psycopg.Connection
) -> None:
    x, y = x_three_and_y_two(conn)
    gates = {number: asyncio.Event() for number in (*x, *y)}
    publisher = Scripted(lambda message: open_gate(gates[message.id]))
    begun: list[int] = []
    async with AsyncExitStack() as stack:
        for owner in ("a", "b"):
            await stack.enter_async_context(dispatching(dsn, to(publisher), owner=owner))
        for opened, expected in [
            (None, {x[0], y[0]}),
            (x[0], {x[1], y[0]}),
            (y[0], {x[1], y[1]}),
            (x[1], {x[2], y[1]}),
        ]:
            if opened is not None:
                gates[opened].set()
            begun = [*begun, *sorted(expected - set(begun))]
            await publisher.until(lambda: len(publisher.begun) >= len(begun))  # noqa: B023
            assert publisher.running == len(expected)
            assert {message.id for message in publisher.begun} == set(begun)
        for gate in gates.values():
            gate.set()
    assert [m.id for m in publisher.taken if m.ordering_key == "X"] == x
    assert [m.id for m in publisher.taken if m.ordering_key == "Y"] == y


async def test_thirty_messages_of_one_lane_over_four_workers_are_finalized_in_id_order(
    dsn: str, conn: psycopg.Connection
) -> None:
    fill(conn, 30, ordering_key="'k'")
    ids = [number for (number,) in conn.execute("SELECT id FROM outbox ORDER BY id")]
    tries: Counter[int] = Counter()

    async def fails_every_third_first(message: ClaimedMessage) -> None:
        tries[message.id] += 1
        if tries[message.id] == 1 and ids.index(message.id) % 3 == 0:
            raise RetryableError("busy")

    publisher = Scripted(fails_every_third_first)
    async with AsyncExitStack() as stack:
        fleet = [
            await stack.enter_async_context(
                dispatching(dsn, to(publisher), owner=f"worker {number}", max_interval=0.01)
            )
            for number in range(4)
        ]
        await publisher.until(lambda: len(publisher.taken) == 30)
    assert [message.id for message in publisher.taken] == ids
    assert conn.execute("SELECT id FROM outbox ORDER BY done_at, id").fetchall() == [
        (number,) for number in ids
    ]
    assert publisher.most == 1
    assert statuses(conn) == {"done": 30}
    assert sum(bool(running.events.of(Claimed)) for running in fleet) > 1


async def open_gate(gate: asyncio.Event) -> None:
    await gate.wait()


def ids_of(lanes: dict[str, list[ClaimedMessage]]) -> dict[str, list[int]]:
    return {key: [message.id for message in run] for key, run in lanes.items()}
