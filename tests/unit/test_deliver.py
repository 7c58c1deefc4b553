from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, cast

import pytest

from pgoutbox.destinations.breaker import Breaker
from pgoutbox.dispatch import deliver
from pgoutbox.errors import DestinationUnavailable, PermanentError, RetryableError
from pgoutbox.events import PublisherFailed
from pgoutbox.outcome import (
    Bury,
    Finish,
    Interrupted,
    PermanentFailure,
    Published,
    Release,
    Retry,
    RetryableFailure,
    Unavailable,
    Unstarted,
)
from tests.support.delivering import Delivery
from tests.support.dispatching import (
    Scripted,
    ScriptedBatch,
    a_message,
    hang,
    raising,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pgoutbox.errors import PublishError
    from pgoutbox.message import ClaimedMessage


async def test_a_published_message_is_to_be_finished_and_stays_ours_until_that_is_written() -> None:
    delivery = Delivery(Scripted())
    delivery.start(1)
    [settled] = await delivery.ended()
    assert (settled.outcome, settled.transition) == (Published(), Finish())
    assert len(delivery.in_flight) == 1


async def test_the_answer_of_a_publisher_decides_what_becomes_of_the_message() -> None:
    delivery = Delivery(Scripted(raising(lambda: PermanentError("too large"))))
    delivery.start(1)
    [settled] = await delivery.ended()
    assert (settled.outcome, settled.transition) == (
        PermanentFailure("too large"),
        Bury("too large"),
    )


async def test_nobody_there_is_blamed_on_the_message_only_when_others_got_through() -> None:
    async def upset(message: ClaimedMessage) -> None:
        if message.id == 1:
            raise DestinationUnavailable("refused")

    delivery = Delivery(Scripted(upset))
    for number in (1, 2, 1):
        delivery.start(number)
        await delivery.ended()
    outcomes = [settled.outcome for settled in delivery.decided.settled]
    assert outcomes == [
        Unavailable("refused", works_for_others=False),
        Published(),
        Unavailable("refused", works_for_others=True),
    ]


async def test_a_message_that_is_refused_for_good_does_not_mean_that_the_destination_works() -> (
    None
):
    failures = Breaker().limits.failures

    async def script(message: ClaimedMessage) -> None:
        if message.id > failures:
            raise PermanentError("too large")
        raise RetryableError("503")

    delivery = Delivery(Scripted(script))
    delivery.start(*range(1, failures + 1))
    await delivery.ended()
    delivery.start(failures + 1)
    await delivery.ended()
    assert delivery.destination.breaker.is_open


async def test_a_message_whose_publish_is_not_to_start_any_more_is_handed_back_unpublished() -> (
    None
):
    publisher = Scripted()
    delivery = Delivery(publisher)
    delivery.deliverer.hand_back([a_message(id=1)], 1e9)
    [settled] = await delivery.ended()
    assert (settled.outcome, settled.transition) == (Unstarted(), Release())
    assert publisher.begun == []


async def test_a_cancelled_publish_means_what_the_canceller_says() -> None:
    publisher = Scripted(hang)
    delivery = Delivery(publisher)
    delivery.start(1, 2)
    await publisher.until(lambda: publisher.running == 2)
    delivery.cancel(1, Interrupted())
    delivery.cancel(2, RetryableFailure("no answer"))
    outcomes = {settled.message.id: settled.outcome for settled in await delivery.ended()}
    assert outcomes == {1: Interrupted(), 2: RetryableFailure("no answer")}


@pytest.mark.parametrize("publisher", [Scripted, ScriptedBatch])
async def test_a_publish_that_is_cancelled_before_its_first_step_counts_like_any_other(
    publisher: type[Scripted | ScriptedBatch],
) -> None:
    delivery = Delivery(publisher())
    delivery.start(1, 2)
    for number in (1, 2):
        delivery.cancel(number, Interrupted())
    outcomes = [settled.outcome for settled in await delivery.ended()]
    assert outcomes == [Interrupted(), Interrupted()]


async def test_a_publisher_that_ends_in_spite_of_its_cancellation_is_believed() -> None:
    async def finish_anyway(message: ClaimedMessage) -> None:
        try:
            await hang(message)
        except asyncio.CancelledError:
            return

    publisher = Scripted(finish_anyway)
    delivery = Delivery(publisher)
    delivery.start(1)
    await publisher.until(lambda: publisher.running)
    await asyncio.sleep(0)
    delivery.cancel(1, Interrupted())
    [settled] = await delivery.ended()
    assert settled.outcome == Published()


async def test_the_outcome_of_a_message_that_is_somebody_elses_by_now_is_not_written() -> None:
    publisher = Scripted(hang)
    delivery = Delivery(publisher)
    delivery.start(1)
    await publisher.until(lambda: publisher.running)
    delivery.abandon(1)
    assert await delivery.ended() == []


async def test_a_bug_of_the_publisher_leaves_the_row_to_its_lease() -> None:
    delivery = Delivery(Scripted(raising(lambda: KeyError("total"))))
    delivery.start(1)
    assert await delivery.ended() == []
    assert len(delivery.in_flight) == 0
    [failed] = delivery.events.of(PublisherFailed)
    assert failed.message.id == 1
    assert isinstance(failed.error, KeyError)
    assert len(delivery.bugs) == 1


async def test_a_bug_of_the_publisher_is_worth_a_retry_where_people_chose_so() -> None:
    delivery = Delivery(Scripted(raising(lambda: KeyError("total"))), retry_unclassified=True)
    delivery.start(1)
    [settled] = await delivery.ended()
    assert settled.outcome == RetryableFailure("unclassified: 'total'")
    assert isinstance(settled.transition, Retry)


async def test_a_bug_of_our_own_in_a_delivery_is_as_loud_as_one_of_the_publisher(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def broken(*_: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(deliver, "decide", broken)
    delivery = Delivery(Scripted())
    delivery.start(1)
    assert await delivery.ended() == []
    assert len(delivery.in_flight) == 0
    [failed] = delivery.events.of(PublisherFailed)
    assert isinstance(failed.error, ZeroDivisionError)
    assert len(delivery.bugs) == 1


async def test_each_message_of_a_batch_has_its_own_outcome() -> None:
    async def one_is_too_large(
        messages: Sequence[ClaimedMessage],
    ) -> Sequence[PublishError | None]:
        return [PermanentError("too large") if m.id == 2 else None for m in messages]

    publisher = ScriptedBatch(one_is_too_large)
    delivery = Delivery(publisher)
    delivery.start(1, 2, 3)
    outcomes = {settled.message.id: settled.outcome for settled in await delivery.ended()}
    assert outcomes == {1: Published(), 2: PermanentFailure("too large"), 3: Published()}
    assert [[m.id for m in batch] for batch in publisher.batches] == [[1, 2, 3]]


async def test_a_batch_that_is_cancelled_for_one_is_cancelled_for_all_but_the_lost() -> None:
    begun = asyncio.Event()

    async def never(_messages: Sequence[ClaimedMessage]) -> Sequence[PublishError | None]:
        begun.set()
        await asyncio.Event().wait()
        return []

    delivery = Delivery(ScriptedBatch(never))
    delivery.start(1, 2, 3)
    await begun.wait()
    delivery.abandon(3)
    await asyncio.sleep(0)
    assert delivery.in_flight.publishing == 3
    delivery.cancel(1, RetryableFailure("no answer"))
    outcomes = {settled.message.id: settled.outcome for settled in await delivery.ended()}
    assert outcomes == dict.fromkeys((1, 2), RetryableFailure("no answer"))


async def test_a_bug_in_a_batch_leaves_all_its_rows_to_their_leases() -> None:
    async def broken(_messages: Sequence[ClaimedMessage]) -> Sequence[PublishError | None]:
        raise KeyError("total")

    delivery = Delivery(ScriptedBatch(broken))
    delivery.start(1, 2, 3)
    assert await delivery.ended() == []
    assert len(delivery.in_flight) == 0
    assert len(delivery.bugs) == 1


async def test_one_answer_that_is_a_bug_costs_its_neighbours_nothing() -> None:
    async def one_is_a_bug(messages: Sequence[ClaimedMessage]) -> Sequence[PublishError | None]:
        answers: list[object] = [ValueError("x") if m.id == 2 else None for m in messages]
        return cast("Sequence[PublishError | None]", answers)

    delivery = Delivery(ScriptedBatch(one_is_a_bug))
    delivery.start(1, 2, 3)
    outcomes = {settled.message.id: settled.outcome for settled in await delivery.ended()}
    assert outcomes == {1: Published(), 3: Published()}
    assert [failed.message.id for failed in delivery.events.of(PublisherFailed)] == [2]
    assert len(delivery.bugs) == 1


@pytest.mark.parametrize("error", [RuntimeError("torn"), RetryableError("torn")])
async def test_what_a_publisher_makes_of_our_cancellation_is_no_news(error: Exception) -> None:
    async def turn(message: ClaimedMessage) -> None:
        try:
            await hang(message)
        except asyncio.CancelledError:
            raise error from None

    publisher = Scripted(turn)
    delivery = Delivery(publisher)
    delivery.start(1)
    await publisher.until(lambda: publisher.running)
    await asyncio.sleep(0)
    delivery.cancel(1, Interrupted())
    [settled] = await delivery.ended()
    assert settled.outcome == Interrupted()
    assert delivery.bugs == []


async def test_an_answer_that_only_says_later_does_not_prove_that_a_destination_is_there() -> None:
    async def half_dead(message: ClaimedMessage) -> None:
        if message.id == 1:
            raise DestinationUnavailable("refused")
        raise RetryableError("503")

    delivery = Delivery(Scripted(half_dead))
    for number in (1, 2, 1):
        delivery.start(number)
        await delivery.ended()
    assert delivery.decided.settled[-1].outcome == Unavailable("refused", works_for_others=False)


async def test_a_publisher_that_cancels_its_own_task_is_told_of_as_a_bug() -> None:
    async def give_up(_message: ClaimedMessage) -> None:
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        await asyncio.sleep(0)

    delivery = Delivery(Scripted(give_up))
    delivery.start(1)
    assert await delivery.ended() == []
    assert len(delivery.bugs) == 1
