"""Destinations that hang, are dead, or cannot stand one message; and their neighbours."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from pgoutbox.destinations.breaker import Breaker, BreakerLimits
from pgoutbox.dispatch import retry
from pgoutbox.errors import DestinationUnavailable
from pgoutbox.outcome import RetryableFailure, Unavailable
from tests.support.dispatching import (
    AT_ONCE,
    NO_PATIENCE,
    Events,
    Scripted,
    dispatching,
    hang,
    raising,
    row,
    to,
)
from tests.support.outbox_rows import fill, insert

if TYPE_CHECKING:
    import psycopg

    from pgoutbox.events import Settled
    from pgoutbox.message import ClaimedMessage


@pytest.fixture
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """What found nobody there is due again at once."""
    monkeypatch.setattr(retry, "MIN_UNAVAILABLE_DELAY", 0.0)


def quick() -> Breaker:
    """Tries a closed destination again every few milliseconds."""
    return Breaker(BreakerLimits(pause=0.01, max_pause=0.02))


def of(events: Events, destination: str) -> list[Settled]:
    return [s for s in events.written() if s.message.destination == destination]


def by_destination(conn: psycopg.Connection[Any]) -> dict[tuple[str, str], int]:
    rows = conn.execute(
        "SELECT destination, status, count(*) FROM outbox GROUP BY destination, status"
    ).fetchall()
    return {(destination, status): count for destination, status, count in rows}


async def test_a_destination_that_hangs_keeps_its_slots_and_nobody_elses(
    dsn: str, conn: psycopg.Connection
) -> None:
    for name in ("hung", "good"):
        fill(conn, 100, destination=f"'{name}'")
    hung, good = Scripted(hang), Scripted()
    async with dispatching(
        dsn, to(hung, "hung", concurrency=2), to(good, "good"), max_in_flight=10, times=NO_PATIENCE
    ) as running:
        await running.events.until(lambda: len(of(running.events, "good")) == 100)
        assert (hung.running, len(hung.begun)) == (2, 2)
        insert(conn, destination="good")
        await running.events.until(lambda: len(of(running.events, "good")) == 101)


async def test_what_hangs_in_one_worker_holds_up_no_other_worker(
    dsn: str, conn: psycopg.Connection
) -> None:
    fill(conn, 2)
    hung, good = Scripted(hang), Scripted()
    async with dispatching(dsn, to(hung, concurrency=2), owner="w-0", times=NO_PATIENCE):
        await hung.until(lambda: hung.running == 2)
        async with dispatching(dsn, to(good), owner="w-1") as running:
            fill(conn, 50)
            await running.events.finished(50)
    assert len(good.taken) == 50
    assert len(hung.begun) == 2


async def test_a_publish_that_hangs_ends_at_its_timeout_and_spends_its_attempts(
    dsn: str, conn: psycopg.Connection
) -> None:
    number = insert(conn)
    publisher = Scripted(hang)
    async with dispatching(dsn, to(publisher, publish_timeout=0.05)) as running:
        written = await running.events.finished(3)
    assert [settled.message.attempts for settled in written] == [1, 2, 3]
    assert {settled.outcome for settled in written} == {
        RetryableFailure("no answer within 0.05 s", timed_out=True)
    }
    assert row(conn, number)["status"] == "dead"
    assert publisher.running == 0


@pytest.mark.usefixtures("no_pauses")
async def test_one_dead_destination_of_three_leaves_the_others_alone(
    dsn: str, conn: psycopg.Connection
) -> None:
    for name in ("dead", "red", "blue"):
        fill(conn, 200, destination=f"'{name}'")
    dead = Scripted(raising(lambda: DestinationUnavailable("refused")))
    red, blue = Scripted(), Scripted()
    async with dispatching(
        dsn, to(dead, "dead", concurrency=20), to(red, "red"), to(blue, "blue"), max_in_flight=30
    ) as running:
        await running.events.until(
            lambda: len(of(running.events, "red")) == len(of(running.events, "blue")) == 200
        )
        tried = len(dead.begun)
    assert by_destination(conn) == {
        ("dead", "pending"): 200,
        ("red", "done"): 200,
        ("blue", "done"): 200,
    }
    # Everything that was tried before the first answers were in, and a few single tries.
    assert tried <= 40


@pytest.mark.usefixtures("no_pauses")
async def test_a_dead_destination_is_tried_gently_and_costs_no_attempt_until_it_is_back(
    dsn: str, conn: psycopg.Connection
) -> None:
    fill(conn, 30)
    back = asyncio.Event()
    at_once: list[int] = []

    async def script(_message: ClaimedMessage) -> None:
        if not back.is_set():
            at_once.append(publisher.running)
            raise DestinationUnavailable("refused")

    publisher = Scripted(script)
    async with dispatching(
        dsn, to(publisher, concurrency=10, breaker=quick()), max_in_flight=10
    ) as running:
        await running.events.finished(15)
        # One alone, then two, then four; of several at once the last one counts them all.
        assert at_once[10:12] == [1, 2]
        assert max(at_once[10:13]) == 2
        spent = conn.execute("SELECT sum(attempts) FROM outbox WHERE status = 'pending'")
        assert spent.fetchone() == (0,)
        back.set()
        await running.events.until(lambda: len(publisher.taken) == 30)
    assert by_destination(conn) == {("default", "done"): 30}
    assert {message.attempts for message in publisher.taken} == {1}


@pytest.mark.usefixtures("no_pauses")
async def test_a_lone_message_to_a_dead_destination_waits_for_ever_and_is_never_buried(
    dsn: str, conn: psycopg.Connection
) -> None:
    number = insert(conn)
    publisher = Scripted(raising(lambda: DestinationUnavailable("refused")))
    breaker = Breaker(BreakerLimits(pause=0.0))
    async with dispatching(dsn, to(publisher, breaker=breaker)) as running:
        written = await running.events.finished(BreakerLimits().failures + AT_ONCE.max_attempts + 2)
    assert {settled.outcome for settled in written} == {
        Unavailable("refused", works_for_others=False)
    }
    assert row(conn, number)["attempts"] == 0
    assert row(conn, number)["last_error"] == "refused"


@pytest.mark.usefixtures("no_pauses")
async def test_a_message_that_upsets_a_healthy_destination_spends_its_attempts_and_dies(
    dsn: str, conn: psycopg.Connection
) -> None:
    bad = insert(conn)

    async def script(message: ClaimedMessage) -> None:
        if message.id == bad:
            raise DestinationUnavailable("reset by peer")

    async with dispatching(dsn, to(Scripted(script))) as running:
        await tried(running.events, bad)
        # Each time somebody else gets through before it comes back.
        for _ in range(20):
            await tried(running.events, insert(conn))
            if row(conn, bad)["status"] == "dead":
                break
    outcomes = [settled.outcome for settled in tries(running.events, bad)]
    assert outcomes[0] == Unavailable("reset by peer", works_for_others=False)
    assert outcomes[-1] == Unavailable("reset by peer", works_for_others=True)
    assert row(conn, bad)["attempts"] == 3
    assert row(conn, bad)["last_error"] == "gave up after 3 attempts: reset by peer"


async def tried(events: Events, number: int) -> None:
    await events.until(lambda: tries(events, number))


def tries(events: Events, number: int) -> list[Settled]:
    return [settled for settled in events.written() if settled.message.id == number]
