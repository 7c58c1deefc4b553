"""What waits for a slot: how much of it, in which steps it begins, and when it goes back."""

from __future__ import annotations

import asyncio
import time
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from pgoutbox.destinations.rate import Rate
from pgoutbox.dispatch.ahead import Ahead
from pgoutbox.dispatch.flight import InFlight
from pgoutbox.errors import DestinationGone, DestinationUnavailable, RetryableError
from pgoutbox.outcome import Unstarted
from tests.support.delivering import Delivery
from tests.support.dispatching import Scripted, ScriptedBatch, a_message, hang, raising, to

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pgoutbox.destinations.destination import Destination
    from pgoutbox.errors import PublishError
    from pgoutbox.message import ClaimedMessage


def an_ahead(seconds: float | None = 0.01, **fields: Any) -> Ahead:
    ahead = Ahead(to(Scripted(), **fields), InFlight(1000), batched=False)
    if seconds is not None:
        ahead.observe(seconds)
    return ahead


def waiting(ahead: Ahead, count: int) -> None:
    flights = InFlight(1000).take([a_message(id=each) for each in range(count)], 1e9, 0.0)
    ahead.put(flights)


def test_as_many_are_claimed_ahead_as_the_slots_get_through_in_a_tenth_of_a_second() -> None:
    assert an_ahead(0.01, concurrency=10).room(1000) == 100
    assert an_ahead(2.0, concurrency=10).room(1000) == 0


def test_nothing_is_claimed_ahead_before_anything_is_known_of_the_destination() -> None:
    assert an_ahead(None).room(1000) == 0


def test_no_more_is_claimed_ahead_than_nobody_else_needs() -> None:
    assert an_ahead(0.01, concurrency=10).room(30) == 30
    assert an_ahead(0.01, concurrency=10).room(0) == 0


def test_the_next_are_claimed_once_half_of_what_waits_has_begun() -> None:
    ahead = an_ahead(0.01, concurrency=10)
    waiting(ahead, 51)
    assert ahead.room(1000) == 0
    ahead = an_ahead(0.01, concurrency=10)
    waiting(ahead, 50)
    assert ahead.room(1000) == 50


def test_nothing_is_claimed_ahead_after_some_had_to_go_back_until_another_publish_has_ended() -> (
    None
):
    ahead = an_ahead(0.001, concurrency=10)
    waiting(ahead, 10)
    assert len(ahead.late(0.0)) == 10
    assert ahead.room(1000) == 0
    ahead.observe(0.01)
    assert ahead.room(1000) == 100


@pytest.mark.parametrize("what", ["stopped", "throttled", "rate", "open"])
def test_nothing_is_claimed_ahead_for_a_destination_that_fails_or_is_limited(what: str) -> None:
    destination = to(Scripted(), concurrency=10)
    ahead = Ahead(destination, InFlight(1000), batched=False)
    ahead.observe(0.01)
    assert ahead.room(1000)
    hinder(destination, what)
    assert ahead.room(1000) == 0


def hinder(destination: Destination, what: str) -> None:
    match what:
        case "stopped":
            destination.stopped = True
        case "throttled":
            destination.throttle.slowed(10, 0.0, time.monotonic())
        case "rate":
            destination.rate = Rate(10)
        case "open":
            destination.breaker.gone(time.monotonic())
        case _:
            raise AssertionError(what)


async def test_what_has_no_slot_waits_and_begins_in_order_as_slots_fall_free() -> None:
    publisher = Scripted()
    delivery = Delivery(publisher, concurrency=2)
    delivery.start(*range(1, 8))
    assert delivery.in_flight.publishing == 2
    settled = await delivery.ended()
    assert publisher.most == 2
    assert [each.message.id for each in settled] == [1, 2, 3, 4, 5, 6, 7]


async def test_a_publish_is_timed_from_its_own_begin_and_not_from_the_claim() -> None:
    async def slow(_message: ClaimedMessage) -> None:
        await asyncio.sleep(0.02)

    delivery = Delivery(Scripted(slow), concurrency=1)
    delivery.start(1, 2)
    first, second = await delivery.ended()
    assert second.started >= first.started + first.seconds
    assert first.seconds + second.seconds <= time.monotonic() - first.started


async def test_large_batches_leave_slots_for_the_next_ones() -> None:
    publisher = ScriptedBatch()
    delivery = Delivery(publisher, concurrency=480)
    delivery.start(*range(1000))
    await delivery.ended()
    assert [len(batch) for batch in publisher.batches[:4]] == [120, 120, 120, 120]


async def test_a_batch_is_not_begun_for_a_few_slots_while_another_is_under_way() -> None:
    go_on = asyncio.Event()

    async def script(messages: Sequence[ClaimedMessage]) -> Sequence[None]:
        if len(messages) > 1:
            await go_on.wait()
        return [None] * len(messages)

    publisher = ScriptedBatch(script)
    delivery = Delivery(publisher, concurrency=8)
    delivery.start(1)
    delivery.start(*range(2, 9))
    delivery.start(*range(9, 16))
    await delivery.decided.so_many(1)
    await asyncio.sleep(0)
    assert [len(batch) for batch in publisher.batches] == [1, 7]
    go_on.set()
    await delivery.ended()
    assert [len(batch) for batch in publisher.batches] == [1, 7, 7]


async def test_what_waits_goes_back_unspent_when_the_destination_fails() -> None:
    publisher = Scripted(raising(lambda: DestinationUnavailable("refused")))
    delivery = Delivery(publisher, concurrency=10)
    delivery.start(*range(40))
    settled = await delivery.ended()
    back = [each for each in settled if isinstance(each.outcome, Unstarted)]
    assert len(settled) == 40
    assert len(publisher.begun) == 40 - len(back) <= 20


@pytest.mark.parametrize("refusal", [DestinationGone, partial(RetryableError, throttled=True)])
async def test_nothing_that_waits_begins_after_an_answer_that_speaks_against_it(
    refusal: Callable[[str], PublishError],
) -> None:
    publisher = Scripted(raising(lambda: refusal("enough")))
    delivery = Delivery(publisher, concurrency=1)
    delivery.start(*range(5))
    await delivery.ended()
    assert len(publisher.begun) == 1


async def test_what_waits_goes_back_when_its_slots_hang(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pgoutbox.dispatch.deliver.LONGEST_WAIT", 0.01)
    delivery = Delivery(Scripted(hang), concurrency=2)
    delivery.start(*range(6))
    back = await delivery.decided.so_many(4)
    assert {type(each.outcome) for each in back} == {Unstarted}
    assert delivery.in_flight.publishing == 2


async def test_what_was_lost_while_it_waited_is_not_begun() -> None:
    publisher = Scripted()
    delivery = Delivery(publisher, concurrency=1)
    delivery.start(1, 2, 3)
    delivery.abandon(2)
    await delivery.ended()
    assert [message.id for message in publisher.begun] == [1, 3]


class Held:
    """A script for batches: those of more than one message wait until they may go on."""

    def __init__(self) -> None:
        self.go_on = asyncio.Event()
        self.publisher = ScriptedBatch(self)

    async def __call__(self, messages: Sequence[ClaimedMessage]) -> Sequence[None]:
        if len(messages) > 2:
            await self.go_on.wait()
        return [None] * len(messages)

    @property
    def sizes(self) -> list[int]:
        return [len(batch) for batch in self.publisher.batches]


async def under_way(held: Held, delivery: Delivery, count: int) -> None:
    """So many are being published."""
    delivery.start(*range(1, count + 1))
    await asyncio.sleep(0)
    assert held.sizes == [count]


async def test_all_that_there_is_begins_though_it_is_few_while_a_batch_is_under_way() -> None:
    held = Held()
    delivery = Delivery(held.publisher, concurrency=12)
    await under_way(held, delivery, 10)
    delivery.start(11)
    await delivery.decided.so_many(1)
    assert held.sizes == [10, 1]
    held.go_on.set()
    await delivery.ended()


async def test_what_a_limit_lets_through_begins_at_once_though_it_is_few() -> None:
    held = Held()
    delivery = Delivery(held.publisher, concurrency=12)
    delivery.destination.rate = Rate(10)
    await under_way(held, delivery, 10)
    delivery.start(11, 12)
    settled = await delivery.decided.so_many(2)
    assert not [each for each in settled if isinstance(each.outcome, Unstarted)]
    assert held.sizes == [10, 2]
    held.go_on.set()
    await delivery.ended()


async def test_a_batch_does_not_wait_for_slots_that_hang() -> None:
    held = Held()
    delivery = Delivery(held.publisher, concurrency=12)
    await under_way(held, delivery, 10)
    delivery.in_flight.give_up(list(delivery.in_flight))
    delivery.start(11, 12, 13)
    await delivery.decided.so_many(3)
    assert held.sizes == [10, 2, 1]


async def test_a_batch_waits_for_others_no_longer_than_anything_waits_for_a_slot(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("pgoutbox.dispatch.deliver.LONGEST_WAIT", 0.01)
    held = Held()
    delivery = Delivery(held.publisher, concurrency=12)
    await under_way(held, delivery, 10)
    delivery.start(11, 12, 13)
    settled = await delivery.decided.so_many(3)
    assert [isinstance(each.outcome, Unstarted) for each in settled].count(True) == 1
    assert held.sizes == [10, 2]
    held.go_on.set()
    await delivery.ended()
