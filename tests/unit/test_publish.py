from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import TYPE_CHECKING, cast

import pytest

from pgoutbox.dispatch.publish import Unclassified, publish, publish_batch
from pgoutbox.errors import (
    Defer,
    DestinationUnavailable,
    PermanentError,
    PublishError,
    RetryableError,
)
from pgoutbox.outcome import (
    Deferred,
    Outcome,
    PermanentFailure,
    Published,
    RetryableFailure,
    Unavailable,
)
from tests.support.dispatching import Scripted, ScriptedBatch, a_message, hang, raising

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pgoutbox.message import ClaimedMessage

MESSAGES = [a_message(id=1), a_message(id=2), a_message(id=3)]

ANSWERS: list[tuple[PublishError, Outcome]] = [
    (RetryableError("busy"), RetryableFailure("busy")),
    (RetryableError("busy", retry_after=7.0), RetryableFailure("busy", 7.0)),
    (PermanentError("too large"), PermanentFailure("too large")),
    (Defer(timedelta(minutes=2), "closed on Sundays"), Deferred(120.0, "closed on Sundays")),
    (DestinationUnavailable("refused"), Unavailable("refused", works_for_others=False)),
    (PermanentError(""), PermanentFailure("PermanentError")),
]

BUGS: list[Callable[[], BaseException]] = [
    lambda: KeyError("total"),
    lambda: PublishError("neither of the four"),
    lambda: asyncio.CancelledError("the client's own"),
    lambda: ExceptionGroup("several", [ValueError("x")]),
]


async def test_a_publish_that_returns_has_published() -> None:
    assert await publish(MESSAGES[0], Scripted()) == Published()


@pytest.mark.parametrize(("error", "outcome"), ANSWERS, ids=repr)
async def test_each_of_the_four_exceptions_stands_for_an_outcome(
    error: PublishError, outcome: Outcome
) -> None:
    assert await publish(MESSAGES[0], Scripted(raising(lambda: error))) == outcome


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: type(bug()).__name__)
async def test_anything_else_is_a_bug_of_the_publisher_and_keeps_its_cause(
    bug: Callable[[], BaseException],
) -> None:
    with pytest.raises(Unclassified) as caught:
        await publish(MESSAGES[0], Scripted(raising(bug)))
    assert type(caught.value.__cause__) is type(bug())


async def test_a_timeout_of_the_publishers_own_is_worth_a_retry() -> None:
    publisher = Scripted(raising(lambda: TimeoutError("no acknowledgement")))
    assert await publish(MESSAGES[0], publisher) == RetryableFailure(
        "timed out: no acknowledgement"
    )


async def test_our_own_cancellation_of_a_publish_stays_a_cancellation() -> None:
    publisher = Scripted(hang)
    task = asyncio.create_task(publish(MESSAGES[0], publisher))
    await publisher.until(lambda: publisher.running)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_a_batch_has_one_outcome_for_each_answer_in_order() -> None:
    async def mixed(_messages: Sequence[ClaimedMessage]) -> Sequence[PublishError | None]:
        return [None, PermanentError("too large"), RetryableError("busy")]

    assert await publish_batch(MESSAGES, ScriptedBatch(mixed)) == [
        Published(),
        PermanentFailure("too large"),
        RetryableFailure("busy"),
    ]


@pytest.mark.parametrize(("error", "outcome"), ANSWERS, ids=repr)
async def test_a_batch_that_fails_as_a_whole_fails_for_each_of_its_messages(
    error: PublishError, outcome: Outcome
) -> None:
    async def fail(_messages: Sequence[ClaimedMessage]) -> Sequence[PublishError | None]:
        raise error

    assert await publish_batch(MESSAGES, ScriptedBatch(fail)) == [outcome] * 3


async def test_a_timeout_of_a_batch_publishers_own_is_worth_a_retry_of_each() -> None:
    async def slow(_messages: Sequence[ClaimedMessage]) -> Sequence[PublishError | None]:
        raise TimeoutError

    outcomes = await publish_batch(MESSAGES, ScriptedBatch(slow))
    assert outcomes == [RetryableFailure("timed out: TimeoutError")] * 3


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: type(bug()).__name__)
async def test_a_batch_publisher_has_bugs_as_any_other(bug: Callable[[], BaseException]) -> None:
    async def fail(_messages: Sequence[ClaimedMessage]) -> Sequence[PublishError | None]:
        raise bug()

    with pytest.raises(Unclassified) as caught:
        await publish_batch(MESSAGES, ScriptedBatch(fail))
    assert type(caught.value.__cause__) is type(bug())


@pytest.mark.parametrize(
    "answers",
    [None, [], [None, None], [None] * 4],
    ids=repr,
)
async def test_answers_that_do_not_fit_the_batch_are_a_bug(answers: list[None]) -> None:
    async def answer(_messages: Sequence[ClaimedMessage]) -> Sequence[PublishError | None]:
        return answers

    with pytest.raises(Unclassified):
        await publish_batch(MESSAGES, ScriptedBatch(answer))


@pytest.mark.parametrize("bug", [ValueError("x"), "taken"], ids=repr)
async def test_an_answer_that_is_none_of_those_allowed_is_a_bug_about_that_message_alone(
    bug: object,
) -> None:
    async def answer(_messages: Sequence[ClaimedMessage]) -> Sequence[PublishError | None]:
        return cast("Sequence[PublishError | None]", [None, bug, None])

    first, second, third = await publish_batch(MESSAGES, ScriptedBatch(answer))
    assert (first, third) == (Published(), Published())
    assert isinstance(second, Unclassified)


class Mute(Exception):  # noqa: N818 - what it is like
    """Cannot even say what is wrong."""

    def __str__(self) -> str:
        raise RuntimeError("no words")


@pytest.mark.parametrize("bug", [SystemExit(0), KeyboardInterrupt(), GeneratorExit(), Mute()])
async def test_whatever_a_publisher_raises_is_its_bug_and_ends_nothing_else(
    bug: BaseException,
) -> None:
    async def fail(_message: ClaimedMessage) -> None:
        raise bug

    with pytest.raises(Unclassified):
        await publish(MESSAGES[0], Scripted(fail))


async def test_a_publisher_cannot_shorten_the_batch_that_it_is_asked_about() -> None:
    async def shorten(messages: Sequence[ClaimedMessage]) -> Sequence[PublishError | None]:
        cast("list[ClaimedMessage]", messages).clear()
        return []

    with pytest.raises(Unclassified):
        await publish_batch(list(MESSAGES), ScriptedBatch(shorten))
