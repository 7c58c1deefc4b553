"""Publishers that misbehave, and parts of the worker that end unexpectedly."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pytest

from pgoutbox.dispatch import keeper
from pgoutbox.dispatch.drain import DrainTimes
from pgoutbox.dispatch.finalizer import Finalizer
from pgoutbox.dispatch.keeper import Keeper
from pgoutbox.dispatch.listen import Listener
from pgoutbox.dispatch.loop import Dispatcher
from pgoutbox.dispatch.rounds import Rounds
from pgoutbox.events import (
    DestinationStopped,
    DrainEnded,
    DrainStarted,
    PublisherFailed,
)
from tests.support.dispatching import (
    Scripted,
    dispatching,
    eventually,
    expire,
    raising,
    row,
    statuses,
    to,
)
from tests.support.outbox_rows import fill, insert

if TYPE_CHECKING:
    import psycopg

    from pgoutbox.message import ClaimedMessage


async def test_an_unclassified_error_stops_its_destination_and_the_others_go_on(
    dsn: str, conn: psycopg.Connection
) -> None:
    bad = insert(conn, destination="buggy")
    publisher = Scripted(raising(lambda: KeyError("total")))
    async with dispatching(
        dsn, to(publisher, "buggy", concurrency=1), to(Scripted(), "good")
    ) as running:
        [stopped] = await running.events.seen(DestinationStopped)
        fill(conn, 5, destination="'buggy'")
        fill(conn, 5, destination="'good'")
        await running.events.finished(5)
        held = row(conn, bad)
        assert await running.stop() == 0
    assert (stopped.destination, stopped.reason) == ("buggy", "'total'")
    [failed] = running.events.of(PublisherFailed)
    assert isinstance(failed.error, KeyError)
    assert failed.error.__traceback__ is not None
    assert (held["status"], held["attempts"]) == ("processing", 1)
    assert len(publisher.begun) == 1
    assert statuses(conn) == {"processing": 1, "pending": 5, "done": 5}


async def test_a_worker_without_a_destination_left_drains_and_exits_with_one(
    dsn: str, conn: psycopg.Connection
) -> None:
    for name in ("one", "two"):
        insert(conn, destination=name)
    buggy = raising(lambda: KeyError("total"))
    async with dispatching(dsn, to(Scripted(buggy), "one"), to(Scripted(buggy), "two")) as running:
        assert await running.ended() == 1
    assert len(running.events.of(DestinationStopped)) == 2
    [drain] = running.events.of(DrainStarted)
    assert "no destination is left" in drain.reason
    assert statuses(conn) == {"processing": 2}


async def test_what_a_buggy_publisher_never_answers_for_ends_dead_at_its_limit(
    dsn: str, conn: psycopg.Connection
) -> None:
    number = insert(conn)
    deaths = 0
    while row(conn, number)["status"] != "dead":
        publisher = Scripted(raising(lambda: KeyError("total")))
        async with dispatching(dsn, to(publisher)) as running:
            await eventually(
                lambda: running.events.of(DrainEnded) or row(conn, number)["status"] == "dead"
            )
        deaths += len(publisher.begun)
        expire(conn)
    assert deaths == 3


async def test_an_unclassified_error_is_an_ordinary_failure_where_people_chose_so(
    dsn: str, conn: psycopg.Connection
) -> None:
    number = insert(conn)
    publisher = Scripted(raising(lambda: KeyError("total")))
    async with dispatching(dsn, to(publisher), retry_unclassified=True) as running:
        await running.events.finished(3)
        assert await running.stop() == 0
    assert len(running.events.of(PublisherFailed)) == 3
    assert running.events.of(DestinationStopped) == []
    assert row(conn, number)["status"] == "dead"
    assert "unclassified: 'total'" in row(conn, number)["last_error"]


async def test_a_publisher_that_ignores_its_cancellation_is_given_up_and_blocks_nobody(
    dsn: str, conn: psycopg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keeper, "HUNG_AFTER", 0.1)
    stubborn, release = insert(conn), asyncio.Event()

    async def script(message: ClaimedMessage) -> None:
        while message.id == stubborn and not release.is_set():
            with suppress(asyncio.CancelledError):
                await release.wait()

    publisher = Scripted(script)
    short = DrainTimes(grace=3.0, soft=0.2, cancel=0.1, release=0.1, flush=0.1, margin=0.1)
    async with dispatching(
        dsn, to(publisher, concurrency=2, publish_timeout=0.1), times=short
    ) as running:
        [failed] = await running.events.seen(PublisherFailed)
        fill(conn, 5)
        await running.events.finished(5)
        assert len(running.dispatcher.in_flight) == 0
        assert running.dispatcher.in_flight.publishing == 1
        assert await running.stop() == 0
        assert publisher.running == 1
        release.set()
        await publisher.until(lambda: publisher.running == 0)
    assert failed.message.id == stubborn
    assert row(conn, stubborn)["status"] == "processing"
    assert statuses(conn) == {"processing": 1, "done": 5}


async def broken(*_: object) -> None:
    raise ZeroDivisionError


PARTS: dict[str, tuple[type[Any], str]] = {
    "claim": (Dispatcher, "_claim"),
    "finalize": (Finalizer, "run"),
    "renew": (Keeper, "renew_forever"),
    "watch": (Keeper, "watch_forever"),
    "sweep": (Rounds, "heartbeat"),
    "listen": (Listener, "run"),
}


@pytest.mark.parametrize("name", PARTS)
async def test_a_part_that_fails_unexpectedly_ends_the_worker_with_one(
    dsn: str, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setattr(*PARTS[name], broken)
    async with dispatching(dsn, to(Scripted()), listen=True) as running:
        assert await running.ended() == 1
    [drain] = running.events.of(DrainStarted)
    assert drain.reason == f"the task {name} ended unexpectedly: ZeroDivisionError()"
    assert len(running.events.of(DrainEnded)) == 1


async def test_work_in_flight_is_finished_when_a_part_ends_the_worker(
    dsn: str, conn: psycopg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    number = insert(conn)
    publisher = Scripted()

    async def script(_message: ClaimedMessage) -> None:
        await running.events.seen(DrainStarted)

    async def fails_then(self: Keeper, _destinations: object) -> None:
        await publisher.until(lambda: publisher.running)
        raise ZeroDivisionError(self)

    publisher._script = script
    monkeypatch.setattr(Keeper, "watch_forever", fails_then)
    async with dispatching(dsn, to(publisher)) as running:
        assert await running.ended() == 1
    assert row(conn, number)["status"] == "done"
