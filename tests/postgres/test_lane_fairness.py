"""Nobody waits long for somebody else's lane: counted in messages, never in seconds."""

from __future__ import annotations

import asyncio
from itertools import groupby
from typing import TYPE_CHECKING, Any

import pytest

from pgoutbox.errors import RetryableError
from tests.support.crowds import BACKLOG, SOON, a_tick, passed_by
from tests.support.dispatching import (
    Scripted,
    dispatching,
    eventually,
    to,
)
from tests.support.order_traffic import BOOKS, read_changes
from tests.support.outbox_rows import fill, insert

if TYPE_CHECKING:
    import psycopg

    from pgoutbox.message import ClaimedMessage
    from tests.support.order_replay import Change


@pytest.mark.parametrize("slots", [2, 4])
@pytest.mark.parametrize("key", ["a", "z"])
async def test_a_new_message_of_another_lane_does_not_wait_for_a_hot_lane_to_end(
    dsn: str, conn: psycopg.Connection, slots: int, key: str
) -> None:
    fill(conn, BACKLOG, ordering_key="'hot'")
    publisher = Scripted(a_tick)
    async with dispatching(dsn, to(publisher, concurrency=slots), listen=True) as running:
        assert await passed_by(running, publisher, lambda: insert(conn, ordering_key=key)) < SOON


@pytest.mark.parametrize("slots", [1, 4])
async def test_a_new_unordered_message_does_not_wait_for_lanes_that_could_take_every_slot(
    dsn: str, conn: psycopg.Connection, slots: int
) -> None:
    fill(conn, BACKLOG, ordering_key="'k' || g % 8")
    publisher = Scripted(a_tick)
    async with dispatching(dsn, to(publisher, concurrency=slots), listen=True) as running:
        assert await passed_by(running, publisher, lambda: insert(conn)) < SOON


@pytest.mark.parametrize("slots", [1, 4])
async def test_a_new_ordered_message_does_not_wait_for_unordered_ones_that_could_take_every_slot(
    dsn: str, conn: psycopg.Connection, slots: int
) -> None:
    fill(conn, BACKLOG)
    publisher = Scripted(a_tick)
    async with dispatching(dsn, to(publisher, concurrency=slots), listen=True) as running:
        assert await passed_by(running, publisher, lambda: insert(conn, ordering_key="k")) < SOON


@pytest.mark.parametrize("slots", [2, 4, 9])
async def test_of_two_backlogs_neither_the_ordered_nor_the_unordered_one_stands_still(
    dsn: str, conn: psycopg.Connection, slots: int
) -> None:
    fill(conn, BACKLOG)
    fill(conn, BACKLOG, ordering_key="'k' || g % 100")
    publisher = Scripted(a_tick)
    async with dispatching(dsn, to(publisher, concurrency=slots)) as running:
        await publisher.until(lambda: len(publisher.begun) >= 2 * SOON)
        running.dispatcher.request_stop("seen enough")
    kinds = [message.ordering_key is None for message in publisher.begun]
    assert max(len(list(stretch)) for _, stretch in groupby(kinds)) < SOON


async def test_a_lane_whose_publish_hangs_holds_up_no_other(
    dsn: str, conn: psycopg.Connection
) -> None:
    fill(conn, 20, ordering_key="'slow'")
    fill(conn, 400, ordering_key="'k' || g % 20")
    fill(conn, 100)
    over = asyncio.Event()

    async def slow_ones_hang(message: ClaimedMessage) -> None:
        if message.ordering_key == "slow":
            await over.wait()

    publisher = Scripted(slow_ones_hang)
    async with dispatching(dsn, to(publisher, concurrency=2)):
        await publisher.until(lambda: len(publisher.taken) == 500)
        assert sum(message.ordering_key == "slow" for message in publisher.begun) == 1
        over.set()
        await publisher.until(lambda: len(publisher.taken) == 520)


class Pausing(Scripted):
    """Publishes so many, and waits before the next one until it may go on."""

    def __init__(self, after: int, error: Exception | None = None) -> None:
        super().__init__(self._act)
        self._after = after
        self._error = error
        self.goes_on = asyncio.Event()

    async def _act(self, _message: ClaimedMessage) -> None:
        if len(self.begun) > self._after:
            await self.goes_on.wait()
            if self._error is not None:
                raise self._error

    async def held(self, conn: psycopg.Connection) -> tuple[int, list[int]]:
        """Once it waits: the id of that one, and of those that wait behind it in its run."""
        await self.until(lambda: len(self.begun) > self._after)
        current = self.begun[-1].id
        found = conn.execute(
            "SELECT id FROM outbox WHERE status = 'processing' AND id > %s ORDER BY id", [current]
        ).fetchall()
        assert found
        return current, [number for (number,) in found]


async def test_a_worker_that_is_to_stop_gives_back_the_unstarted_rest_of_a_run_at_once(
    dsn: str, conn: psycopg.Connection
) -> None:
    fill(conn, 500, ordering_key="'k'")
    publisher = Pausing(after=200)
    async with dispatching(dsn, to(publisher, concurrency=1)) as running:
        current, rest = await publisher.held(conn)
        running.dispatcher.request_stop("SIGTERM")
        await eventually(lambda: states(conn, rest) == {("pending", 0)})
        assert states(conn, [current]) == {("processing", 1)}
        publisher.goes_on.set()
        assert await running.ended() == 0
    assert states(conn, [message.id for message in publisher.begun]) == {("done", 1)}
    assert states(conn, rest) == {("pending", 0)}
    assert len(publisher.begun) == 201


async def test_a_failure_within_a_run_gives_back_the_rest_of_it_in_the_same_statement(
    dsn: str, conn: psycopg.Connection
) -> None:
    fill(conn, 500, ordering_key="'k'")
    conn.execute(BOOKS)
    publisher = Pausing(after=200, error=RetryableError("busy", retry_after=600.0))
    async with dispatching(dsn, to(publisher, concurrency=1)) as running:
        current, rest = await publisher.held(conn)
        before = len(list(read_changes(conn)))
        publisher.goes_on.set()
        await running.events.until(lambda: states(conn, [current]) == {("pending", 1)})
    changes = list(read_changes(conn))[before:]
    failure = next(change for change in changes if change.row == current)
    together = [change for change in changes if change.transaction == failure.transaction]
    assert [change.row for change in together if change.row > current] == rest
    assert {standing(change) for change in together if change.row > current} == {("pending", 0)}
    assert standing(failure) == ("pending", 1)
    assert len(publisher.begun) == 201


def standing(change: Change) -> tuple[str, int]:
    return change.status, change.attempts


def states(conn: psycopg.Connection[Any], ids: list[int]) -> set[tuple[str, int]]:
    """Status and attempts of these rows, in one snapshot."""
    return set(
        conn.execute("SELECT status, attempts FROM outbox WHERE id = ANY (%s)", [ids]).fetchall()
    )
