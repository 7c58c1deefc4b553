"""A worker with a backlog claims what has no slot yet, and gives back what it does not begin."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING
from unittest import mock

from pgoutbox.dispatch.loop import Dispatcher, DispatchOptions
from pgoutbox.dispatch.wakeup import Wakeup
from pgoutbox.errors import DestinationUnavailable
from pgoutbox.events import Claimed
from pgoutbox.outcome import Interrupted
from tests.support.dispatching import (
    NO_PATIENCE,
    Events,
    Scripted,
    ScriptedBatch,
    claimed,
    database,
    dispatching,
    eventually,
    hang,
    statuses,
    to,
)
from tests.support.outbox_rows import fill

if TYPE_CHECKING:
    from collections.abc import Sequence

    import psycopg
    import pytest

    from pgoutbox.message import ClaimedMessage


async def a_moment(_message: ClaimedMessage) -> None:
    """A destination that takes a millisecond."""
    await asyncio.sleep(0.001)


async def test_a_backlog_is_claimed_by_more_than_the_slots_hold_and_published_by_no_more(
    dsn: str, conn: psycopg.Connection
) -> None:
    fill(conn, 300)
    publisher = Scripted(a_moment)
    async with dispatching(dsn, to(publisher, concurrency=5), max_in_flight=60) as running:
        await running.events.finished(300)
        claims = [len(event.messages) for event in running.events.of(Claimed)]
    assert publisher.most == 5
    assert 5 < max(claims) <= 60
    assert len(publisher.begun) == 300
    assert statuses(conn) == {"done": 300}


async def test_nothing_is_claimed_ahead_of_slots_that_another_destination_may_need(
    dsn: str, conn: psycopg.Connection
) -> None:
    fill(conn, 100)
    busy, idle = to(Scripted(a_moment), concurrency=5), to(Scripted(), "idle", concurrency=55)
    async with dispatching(dsn, busy, idle, max_in_flight=60) as running:
        await running.events.finished(100)
        assert max(len(event.messages) for event in running.events.of(Claimed)) <= 5


async def test_a_drain_gives_back_what_waits_without_an_attempt(
    dsn: str, conn: psycopg.Connection
) -> None:
    fill(conn, 300)
    held = asyncio.Event()

    async def script(message: ClaimedMessage) -> None:
        await asyncio.sleep(0.001)
        if message.id > 100:
            held.set()
            await asyncio.Event().wait()

    publisher = Scripted(script)
    chosen = to(publisher, concurrency=5)
    async with dispatching(dsn, chosen, max_in_flight=60, times=NO_PATIENCE) as running:
        await held.wait()
        await running.stop()
    asked = conn.execute("SELECT id FROM outbox WHERE attempts > 0 AND status = 'pending'")
    interrupted = {number for (number,) in asked}
    assert interrupted == {each.id for each in publisher.begun} - {e.id for e in publisher.taken}
    assert statuses(conn) == {"done": len(publisher.taken), "pending": 300 - len(publisher.taken)}


async def test_what_waits_for_a_destination_that_hangs_goes_to_others_after_a_second(
    dsn: str, conn: psycopg.Connection
) -> None:
    fill(conn, 300)

    async def script(message: ClaimedMessage) -> None:
        await asyncio.sleep(0.001)
        if message.id > 100:
            await asyncio.Event().wait()

    async with dispatching(
        dsn, to(Scripted(script), concurrency=5), max_in_flight=60, times=NO_PATIENCE
    ) as running:
        await eventually(lambda: len(running.dispatcher.in_flight) > 5)
        await eventually(lambda: len(running.dispatcher.in_flight) == 5)
        await eventually(lambda: statuses(conn).get("processing") == 5)


async def test_what_waits_for_a_destination_that_goes_away_is_given_back_at_once(
    dsn: str, conn: psycopg.Connection
) -> None:
    fill(conn, 300)

    async def script(message: ClaimedMessage) -> None:
        await asyncio.sleep(0.001)
        if message.id > 100:
            raise DestinationUnavailable("refused")

    publisher = Scripted(script)
    async with dispatching(dsn, to(publisher, concurrency=5), max_in_flight=60) as running:
        await eventually(lambda: running.dispatcher.destinations["default"].breaker.is_open)
        await eventually(lambda: not running.dispatcher.deliverer.ahead["default"])
    spent = conn.execute("SELECT count(*) FROM outbox WHERE attempts > 0 AND id > 100").fetchone()
    assert spent == (0,)


async def test_messages_that_wait_for_a_larger_batch_leave_the_event_loop_to_others(
    dsn: str, conn: psycopg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    go_on = asyncio.Event()

    async def script(messages: Sequence[ClaimedMessage]) -> Sequence[None]:
        await go_on.wait()
        return [None] * len(messages)

    chosen = to(ScriptedBatch(script), concurrency=8)
    idle = to(Scripted(), "idle")
    fill(conn, 7)
    async with dispatching(dsn, chosen, idle, max_in_flight=100) as running:
        dispatcher = running.dispatcher
        await eventually(lambda: dispatcher.in_flight.publishing == 7)
        fill(conn, 1)
        await eventually(lambda: len(dispatcher.deliverer.ahead["default"]) == 1)
        turns = mock.Mock(wraps=dispatcher.claimer.turn)
        monkeypatch.setattr(dispatcher.claimer, "turn", turns)
        await asyncio.sleep(0.1)  # What is tested is what happens meanwhile: polls at most.
        assert turns.call_count < 100
        go_on.set()
        await running.events.finished(8)


async def test_slots_that_what_waits_takes_are_not_asked_for_once_more(
    dsn: str, conn: psycopg.Connection
) -> None:
    fill(conn, 30)
    publisher = Scripted(hang)
    wakeup = Wakeup(max_interval=1.0, notify_possible=False)
    named = {"default": to(publisher, concurrency=10)}
    async with database(dsn) as db:
        dispatcher = Dispatcher(db, named, wakeup, DispatchOptions(owner="a"), Events())
        # As while lanes had the other slots, of which so few are left since the claim was sized.
        dispatcher.deliverer.ahead["default"].limit = 5
        dispatcher.deliverer.start(await claimed(db, count=10), 1e9)
        assert await dispatcher.claimer.turn({"default": 2}, 2) == (0, False)
        await publisher.until(lambda: publisher.running == 10)
        for flight in dispatcher.in_flight:
            flight.cancel(Interrupted())
        await dispatcher.deliverer.ended()
