from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, cast

import psycopg
import pytest

from pgoutbox.dispatch import keeper as module
from pgoutbox.dispatch.flight import Flight, InFlight
from pgoutbox.dispatch.keeper import Keeper
from pgoutbox.dispatch.loop import DispatchOptions
from pgoutbox.dispatch.renew import Renewal
from pgoutbox.events import (
    DatabaseFailed,
    LeaseLost,
    LeaseUnconfirmed,
    PublisherFailed,
    Renewed,
)
from pgoutbox.outcome import Interrupted, RetryableFailure
from tests.support.dispatching import Events, Scripted, a_message, to

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from pgoutbox.database.pool import Database
    from pgoutbox.destinations.destination import Destination
    from pgoutbox.message import ClaimedMessage

LEASE, INTERVAL, NOW = 30.0, 10.0, 1000.0


class Clock:
    """A monotonic clock that a test moves."""

    def __init__(self) -> None:
        self.now = NOW

    def monotonic(self) -> float:
        return self.now


class Kept:
    """A keeper, the database's next answers, and the flights."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.clock = Clock()
        self.events = Events()
        self.in_flight = InFlight(100)
        self.destinations = {"default": to(Scripted(), publish_timeout=10.0)}
        self.hung: list[Destination] = []
        self.keeper = Keeper(
            cast("Database", None),
            self.in_flight,
            self.events,
            lease=LEASE,
            interval=INTERVAL,
            on_hung=lambda destination, _: self.hung.append(destination),
        )
        self.lost: set[int] = set()
        self.locked: set[int] = set()
        self.failures: list[Exception] = []
        self.round_trip = 0.0
        self.renewed: list[list[int]] = []
        monkeypatch.setattr(module, "time", self.clock)
        monkeypatch.setattr(module, "renew", self._renew)
        monkeypatch.setattr(module, "WATCH_SECONDS", 0.0)

    def take(self, *ids: int, lease_ends: float = NOW + LEASE) -> list[Flight]:
        flights = self.in_flight.take([a_message(id=number) for number in ids], lease_ends, NOW)
        for flight in flights:
            self.in_flight.depart([flight], asyncio.ensure_future(self._publishing()))
        return flights

    def take_batch(self, *ids: int) -> list[Flight]:
        messages = [a_message(id=number) for number in ids]
        flights = self.in_flight.take(messages, NOW + LEASE, NOW)
        self.in_flight.depart(flights, asyncio.ensure_future(self._publishing()))
        return flights

    async def _publishing(self) -> None:
        await asyncio.Event().wait()

    async def _renew(
        self, _db: object, messages: Sequence[ClaimedMessage], *, lease: float
    ) -> Renewal:
        assert lease == LEASE
        self.renewed.append([message.id for message in messages])
        self.clock.now += self.round_trip
        if self.failures:
            raise self.failures.pop()
        lost = {message.lease for message in messages if message.id in self.lost}
        locked = {message.lease for message in messages if message.id in self.locked}
        return Renewal({message.lease for message in messages} - lost - locked, lost)

    @asynccontextmanager
    async def watching(self) -> AsyncIterator[None]:
        task = asyncio.create_task(self.keeper.watch_forever(self.destinations))
        try:
            yield
        finally:
            task.cancel()

    async def rounds(self, count: int = 5) -> None:
        for _ in range(count):
            await asyncio.sleep(0)


@pytest.fixture
async def kept(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Kept]:
    kept = Kept(monkeypatch)
    yield kept
    for task in asyncio.all_tasks() - {asyncio.current_task()}:
        while not task.done():
            task.cancel()
            await asyncio.sleep(0)


async def stubborn() -> None:
    """Ignores its first two cancellations."""
    for _ in range(2):
        with suppress(asyncio.CancelledError):
            await asyncio.Event().wait()
    await asyncio.Event().wait()


def cancelled(flight: Flight) -> bool:
    assert flight.task is not None
    return flight.task.cancelled()


async def test_a_renewed_lease_is_counted_from_before_the_renewal_was_sent(kept: Kept) -> None:
    [flight] = kept.take(1)
    kept.clock.now += 12.0
    kept.round_trip = 3.0
    await kept.keeper._renew()
    assert flight.lease_ends == NOW + 12.0 + LEASE
    [renewed] = kept.events.of(Renewed)
    assert (renewed.count, renewed.seconds) == (1, 3.0)


async def test_what_was_claimed_just_now_is_not_renewed_yet(kept: Kept) -> None:
    kept.take(1)
    kept.clock.now += INTERVAL / 2
    kept.take(2, lease_ends=kept.clock.now + LEASE)
    kept.clock.now += 0.1
    await kept.keeper._renew()
    assert kept.renewed == [[1]]


async def test_an_empty_worker_renews_nothing(kept: Kept) -> None:
    await kept.keeper._renew()
    assert kept.renewed == []
    assert kept.events.all == []


async def test_what_somebody_else_holds_by_now_is_let_go_and_its_publish_cancelled(
    kept: Kept,
) -> None:
    mine, lost = kept.take(1, 2)
    kept.clock.now += INTERVAL
    kept.lost = {2}
    await kept.keeper._renew()
    await kept.rounds()
    assert [message.id for event in kept.events.of(LeaseLost) for message in event.messages] == [2]
    assert list(kept.in_flight) == [mine]
    assert cancelled(lost)
    assert not cancelled(mine)
    assert mine.lease_ends == kept.clock.now + LEASE


async def test_a_lost_message_of_a_batch_does_not_cancel_its_neighbours(kept: Kept) -> None:
    mine, lost = kept.take_batch(1, 2)
    kept.clock.now += INTERVAL
    kept.lost = {2}
    await kept.keeper._renew()
    await kept.rounds()
    assert lost.abandoned
    assert not cancelled(mine)


async def test_a_batch_of_which_all_is_lost_is_cancelled(kept: Kept) -> None:
    flights = kept.take_batch(1, 2)
    kept.clock.now += INTERVAL
    kept.lost = {1, 2}
    await kept.keeper._renew()
    await kept.rounds()
    assert all(cancelled(flight) for flight in flights)


async def test_a_batch_of_which_some_is_lost_still_ends_at_its_timeout(kept: Kept) -> None:
    mine, _ = kept.take_batch(1, 2)
    kept.clock.now += INTERVAL
    kept.lost = {2}
    await kept.keeper._renew()
    async with kept.watching():
        kept.clock.now += 10.1
        await kept.rounds()
    assert cancelled(mine)


async def test_a_row_that_somebody_has_locked_is_neither_lost_nor_renewed(kept: Kept) -> None:
    mine, locked = kept.take(1, 2)
    kept.clock.now += INTERVAL
    kept.locked = {2}
    await kept.keeper._renew()
    await kept.rounds()
    assert (mine.lease_ends, locked.lease_ends) == (kept.clock.now + LEASE, NOW + LEASE)
    assert not cancelled(locked)
    assert kept.events.of(LeaseLost) == []


@pytest.mark.parametrize("state", ["settled", "abandoned"])
async def test_what_left_the_flight_meanwhile_is_no_news_to_a_renewal(
    kept: Kept, state: str
) -> None:
    [flight] = kept.take(1)
    kept.clock.now += INTERVAL
    kept.lost = {1}
    setattr(flight, state, True)
    await kept.keeper._renew()
    assert kept.events.of(LeaseLost) == []


async def test_a_renewal_that_fails_is_told_and_tried_again(kept: Kept) -> None:
    kept.take(1)
    kept.clock.now += INTERVAL
    kept.failures = [psycopg.OperationalError("gone"), TimeoutError("silent")]
    kept.keeper._interval = 0.0
    task = asyncio.create_task(kept.keeper.renew_forever())
    await kept.events.seen(Renewed)
    task.cancel()
    assert [(e.doing, e.error) for e in kept.events.of(DatabaseFailed)] == [
        ("renew", "silent"),
        ("renew", "gone"),
    ]


async def test_a_publish_ends_at_its_timeout_and_is_worth_a_retry(kept: Kept) -> None:
    [flight] = kept.take(1)
    async with kept.watching():
        kept.clock.now += 9.9
        await kept.rounds()
        assert not cancelled(flight)
        kept.clock.now += 0.2
        await kept.rounds()
        assert cancelled(flight)
    assert flight.verdict == RetryableFailure("no answer within 10 s", timed_out=True)


async def test_a_publish_is_cancelled_before_a_lease_that_could_not_be_confirmed_ends(
    kept: Kept,
) -> None:
    unconfirmed, confirmed = kept.take(1, 2, lease_ends=NOW + 5.0)
    confirmed.lease_ends = NOW + 30.0
    async with kept.watching():
        kept.clock.now += 5.0 - module.FENCE_MARGIN - 0.1
        await kept.rounds()
        assert not cancelled(unconfirmed)
        kept.clock.now += 0.2
        await kept.rounds()
    assert cancelled(unconfirmed)
    assert not cancelled(confirmed)
    assert isinstance(unconfirmed.verdict, RetryableFailure)
    [event] = kept.events.of(LeaseUnconfirmed)
    assert [message.id for message in event.messages] == [1]


async def test_a_publish_that_is_being_cancelled_already_keeps_the_reason(kept: Kept) -> None:
    [flight] = kept.take(1, lease_ends=NOW + 1.0)
    flight.verdict = Interrupted()
    async with kept.watching():
        await kept.rounds()
    assert flight.verdict == Interrupted()
    assert kept.events.all == []


async def test_a_publisher_that_ignores_its_cancellation_is_given_up(kept: Kept) -> None:
    [flight] = kept.in_flight.take([a_message(id=1)], NOW + LEASE, NOW)
    kept.in_flight.depart([flight], asyncio.ensure_future(stubborn()))
    async with kept.watching():
        kept.clock.now += 10.0 + module.HUNG_AFTER + 0.1
        await kept.rounds()
    [failed] = kept.events.of(PublisherFailed)
    assert failed.message.id == 1
    assert "ignored its cancellation" in str(failed.error)
    assert flight.abandoned
    assert len(kept.in_flight) == 0
    assert kept.in_flight.publishing == 1
    assert kept.in_flight.awaited == []


async def test_a_destination_whose_every_slot_hangs_is_told_of(kept: Kept) -> None:
    kept.destinations["default"].concurrency = 2
    for number in (1, 2):
        [flight] = kept.in_flight.take([a_message(id=number)], NOW + LEASE, NOW)
        kept.in_flight.depart([flight], asyncio.ensure_future(stubborn()))
    async with kept.watching():
        kept.clock.now += 10.0 + module.HUNG_AFTER + 0.1
        await kept.rounds()
    assert kept.hung == [kept.destinations["default"]]


async def test_what_is_only_waiting_to_be_written_is_neither_late_nor_hung(kept: Kept) -> None:
    [flight] = kept.take(1, lease_ends=NOW + 1.0)
    flight.settled = True
    async with kept.watching():
        kept.clock.now += 1000.0
        await kept.rounds()
    assert not cancelled(flight)
    assert kept.events.all == []


@pytest.mark.parametrize(("lease", "interval"), [(3.0, 1.0), (5.0, 1.5), (30.0, 10.0)])
def test_no_lease_that_settings_accept_is_given_up_before_its_first_renewal(
    lease: float, interval: float
) -> None:
    keeper = Keeper(cast("Database", None), InFlight(1), Events(), lease=lease, interval=interval)
    youngest_not_renewed, until_next = interval / 2, interval
    left = lease - youngest_not_renewed - until_next
    assert left > keeper.margin + module.WATCH_SECONDS


def test_the_shipped_lease_outlives_two_renewals_and_the_margin_of_the_fence() -> None:
    options = DispatchOptions(owner="a")
    after_two_failed_renewals = options.lease - 2 * options.renew
    assert after_two_failed_renewals > module.FENCE_MARGIN + module.WATCH_SECONDS
