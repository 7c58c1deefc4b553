"""A destination that fails for all, one that wants nothing more, and one with a rate limit."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest

from pgoutbox.destinations.breaker import Breaker, BreakerLimits
from pgoutbox.destinations.destination import RetryPolicy
from pgoutbox.destinations.rate import Rate
from pgoutbox.dispatch import retry
from pgoutbox.errors import DestinationGone, RetryableError
from pgoutbox.events import BreakerChanged
from pgoutbox.outcome import RetryableFailure
from tests.support.dispatching import (
    AT_ONCE,
    NO_PATIENCE,
    Scripted,
    dispatching,
    hang,
    raising,
    row,
    statuses,
    to,
)
from tests.support.outbox_rows import fill, insert

if TYPE_CHECKING:
    import psycopg

    from pgoutbox.message import ClaimedMessage

pytestmark = pytest.mark.postgres

FAILURES = 5


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """What failed with its destination is due again at once."""
    monkeypatch.setattr(retry, "MIN_UNAVAILABLE_DELAY", 0.0)


def quick() -> Breaker:
    return Breaker(BreakerLimits(failures=FAILURES, pause=0.002, max_pause=0.004))


def spent(conn: psycopg.Connection) -> int:
    # Of what is under way, which has one that may be refunded, nobody knows yet.
    found = conn.execute("SELECT sum(attempts) FROM outbox WHERE status <> 'processing'").fetchone()
    assert found is not None
    return int(found[0])


async def test_an_outage_that_answers_with_errors_buries_no_backlog(
    dsn: str, conn: psycopg.Connection
) -> None:
    fill(conn, 30)
    back = asyncio.Event()

    async def script(_message: ClaimedMessage) -> None:
        if not back.is_set():
            raise RetryableError("answered 503")

    publisher = Scripted(script)
    async with dispatching(dsn, to(publisher, concurrency=10, breaker=quick())) as running:
        # Many more tries than all of the messages have attempts.
        await running.events.finished(30 * AT_ONCE.max_attempts + 30)
        assert statuses(conn).keys() <= {"pending", "processing"}
        assert spent(conn) <= FAILURES
        back.set()
        await running.events.until(lambda: len(publisher.taken) == 30)
        changes = await running.events.seen(BreakerChanged, 2)
    assert statuses(conn) == {"done": 30}
    assert changes == [
        BreakerChanged("default", "open", "answered 503"),
        BreakerChanged("default", "closed", ""),
    ]


async def test_a_destination_that_never_answers_is_left_alone_like_one_that_fails(
    dsn: str, conn: psycopg.Connection
) -> None:
    fill(conn, 6)
    destination = to(Scripted(hang), concurrency=6, publish_timeout=0.05, breaker=quick())
    async with dispatching(dsn, destination, times=NO_PATIENCE) as running:
        written = await running.events.finished(6 * AT_ONCE.max_attempts + 1)
        [change] = running.events.of(BreakerChanged)
    assert change.state == "open"
    blamed = [
        settled
        for settled in written
        if isinstance(settled.outcome, RetryableFailure) and settled.outcome.works_for_others
    ]
    assert len(blamed) < FAILURES
    assert "dead" not in statuses(conn)


async def test_a_message_that_fails_alone_spends_its_attempts_and_dies_while_others_pass(
    dsn: str, conn: psycopg.Connection
) -> None:
    bad = insert(conn)

    async def script(message: ClaimedMessage) -> None:
        if message.id == bad:
            raise RetryableError("answered 500")

    async with dispatching(dsn, to(Scripted(script), breaker=quick())) as running:
        fill(conn, 50)
        await running.events.until(
            lambda: len(running.events.written()) >= 50 + AT_ONCE.max_attempts
        )
        assert not running.events.of(BreakerChanged)
    assert statuses(conn) == {"done": 50, "dead": 1}
    assert row(conn, bad)["attempts"] == AT_ONCE.max_attempts


async def test_a_destination_that_is_gone_buries_one_message_and_is_left_alone(
    dsn: str, conn: psycopg.Connection
) -> None:
    fill(conn, 50, destination="'gone'")
    fill(conn, 50, destination="'here'")
    gone = Scripted(raising(lambda: DestinationGone("answered 410 Gone")))
    here = Scripted()
    async with dispatching(
        dsn, to(gone, "gone", concurrency=10), to(here, "here", concurrency=1)
    ) as running:
        await running.events.until(lambda: len(here.taken) == 50)
        [change] = await running.events.seen(BreakerChanged)
    assert change == BreakerChanged("gone", "open", "answered 410 Gone")
    assert len(gone.begun) <= 10
    assert statuses(conn) == {"done": 50, "dead": 1, "pending": 49}
    assert spent(conn) == 50 + 1


async def test_a_rate_limit_holds_and_what_waits_for_it_is_not_claimed(
    dsn: str, conn: psycopg.Connection
) -> None:
    fill(conn, 100)
    publisher = Scripted()
    began = time.monotonic()
    async with dispatching(dsn, to(publisher, rate=Rate(40.0))) as running:
        await running.events.until(lambda: len(publisher.taken) >= 60)
        seconds = time.monotonic() - began
        assert statuses(conn).get("processing", 0) <= 40
    # A second's worth at once, and then so many a second.
    assert 40 * (seconds + 1) >= 60
    assert spent(conn) == len(publisher.taken)


async def test_a_rate_limit_holds_within_a_lane(dsn: str, conn: psycopg.Connection) -> None:
    fill(conn, 60, ordering_key="'a lane'")
    publisher = Scripted()
    began = time.monotonic()
    async with dispatching(dsn, to(publisher, rate=Rate(30.0))) as running:
        await running.events.until(lambda: len(publisher.taken) >= 40)
        assert 30 * (time.monotonic() - began + 1) >= 40
    assert [message.id for message in publisher.taken] == sorted(
        message.id for message in publisher.taken
    )


async def test_a_rate_limit_of_one_destination_leaves_another_alone(
    dsn: str, conn: psycopg.Connection
) -> None:
    fill(conn, 50, destination="'slow'")
    fill(conn, 300, destination="'fast'")
    slow, fast = Scripted(), Scripted()
    async with dispatching(dsn, to(slow, "slow", rate=Rate(2.0)), to(fast, "fast")) as running:
        await running.events.until(lambda: len(fast.taken) == 300)
    assert len(slow.taken) < 50


async def test_a_long_row_of_messages_that_always_fail_does_not_hold_up_what_is_new(
    dsn: str, conn: psycopg.Connection
) -> None:
    an_hour_ago = "now() - interval '1 hour'"
    fill(conn, 2000, aggregate_type="'poison'", available_at=an_hour_ago)

    async def script(message: ClaimedMessage) -> None:
        if message.aggregate_type == "poison":
            raise RetryableError("answered 500")

    publisher = Scripted(script)
    slow = Breaker(BreakerLimits(failures=FAILURES, pause=0.1, max_pause=0.1))
    async with dispatching(dsn, to(publisher, concurrency=10, breaker=slow)) as running:
        await running.events.seen(BreakerChanged)
        insert(conn)
        await publisher.until(lambda: publisher.taken)
        assert len(publisher.begun) < 200


async def test_within_a_rate_limit_lanes_get_as_much_as_unordered_messages(
    dsn: str, conn: psycopg.Connection
) -> None:
    fill(conn, 400)
    fill(conn, 100, ordering_key="g::text")
    publisher = Scripted()
    async with dispatching(dsn, to(publisher, rate=Rate(50.0))) as running:
        await running.events.until(lambda: len(publisher.taken) >= 150)
    # Of the first second's worth it is not known yet that there are lanes.
    ordered = sum(message.ordering_key is not None for message in publisher.taken[50:150])
    assert 35 <= ordered <= 65


async def test_a_destination_with_a_quota_buries_nothing_and_gets_what_it_takes(
    dsn: str, conn: psycopg.Connection
) -> None:
    fill(conn, 60)
    began, refused = time.monotonic(), 0

    async def script(_message: ClaimedMessage) -> None:
        nonlocal refused
        if len(publisher.taken) >= 10 + 20 * (time.monotonic() - began):
            refused += 1
            raise RetryableError("answered 429", throttled=True)

    publisher = Scripted(script)
    async with dispatching(dsn, to(publisher, breaker=quick())) as running:
        await running.events.until(lambda: len(publisher.taken) == 60)
        assert not running.events.of(BreakerChanged)
    assert statuses(conn) == {"done": 60}
    assert refused


async def test_messages_that_are_always_throttled_hold_up_no_others(
    dsn: str, conn: psycopg.Connection
) -> None:
    fill(conn, 20, aggregate_type="'tenant'")

    async def script(message: ClaimedMessage) -> None:
        if message.aggregate_type == "tenant":
            raise RetryableError("answered 429", throttled=True)

    publisher = Scripted(script)
    patient = RetryPolicy(base=0.05, cap=0.5, max_attempts=3)
    async with dispatching(dsn, to(publisher, policy=patient)) as running:
        await running.events.finished(20)
        fill(conn, 500)
        began = time.monotonic()
        await running.events.until(lambda: len(publisher.taken) == 500)
        assert time.monotonic() - began < 4.0
    assert statuses(conn)["done"] == 500
    assert "dead" not in statuses(conn)


@dataclass(slots=True)
class Late(Breaker):
    """Its pause ends between the look at what may be claimed and whatever follows."""

    def allowance(self, slots: int, publishing: int, now: float) -> int:
        # No zero-argument super() in a class that slots make anew.
        free = Breaker.allowance(self, slots, publishing, now)
        # Not at the first look, which the write of the last failure is followed by.
        if 0 < self.half_opens_in(now) < self.limits.pause - 0.005:
            time.sleep(self.half_opens_in(now) + 0.001)
        return free


async def test_a_pause_that_ends_while_nobody_looks_leaves_no_destination_alone_for_ever(
    dsn: str, conn: psycopg.Connection
) -> None:
    fill(conn, FAILURES)
    late = Late(BreakerLimits(failures=FAILURES, pause=0.2, max_pause=0.2))
    publisher = Scripted(raising(lambda: RetryableError("answered 503")))
    async with dispatching(dsn, to(publisher, breaker=late)) as running:
        await running.events.finished(2 * FAILURES)
