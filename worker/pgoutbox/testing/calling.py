"""Calling a publisher as a worker does, whichever kind it is."""

# ruff: noqa: S101 - these are tests

from __future__ import annotations

import asyncio
from collections.abc import Sequence  # noqa: TC003 - as below
from typing import TypeAlias

import pytest

from pgoutbox.errors import (
    Defer,
    DestinationUnavailable,
    PermanentError,
    PublishError,
    RetryableError,
)
from pgoutbox.message import ClaimedMessage  # noqa: TC001 - a signature that users read
from pgoutbox.publisher import BatchPublisher, Publisher
from pgoutbox.testing.messages import make_message

AnyPublisher: TypeAlias = Publisher | BatchPublisher

THE_FOUR = (RetryableError, PermanentError, Defer, DestinationUnavailable)
PATIENCE = 10.0
"""Seconds that anything of the suite may take."""


async def publish_one(publisher: AnyPublisher, message: ClaimedMessage) -> PublishError | None:
    """What became of one message: None for taken, else one of the four. Anything else is raised."""
    try:
        async with asyncio.timeout(PATIENCE):
            if not isinstance(publisher, BatchPublisher):
                await publisher.publish(message)
                return None
            answers = await publisher.publish_batch([message])
    except THE_FOUR as error:
        return error
    assert len(answers) == 1, f"one message, {len(answers)} answers"
    assert answers[0] is None or isinstance(answers[0], THE_FOUR), f"not one of the four: {answers}"
    return answers[0]


async def publish_all(
    publisher: AnyPublisher, messages: Sequence[ClaimedMessage]
) -> Sequence[PublishError | None]:
    """What became of each: in one batch where the publisher takes batches, else side by side."""
    if not isinstance(publisher, BatchPublisher):
        return await asyncio.gather(*(publish_one(publisher, each) for each in messages))
    async with asyncio.timeout(PATIENCE):
        answers = await publisher.publish_batch(messages)
    assert len(answers) == len(messages), f"{len(messages)} messages, {len(answers)} answers"
    assert all(answer is None or isinstance(answer, THE_FOUR) for answer in answers), answers
    return answers


async def worth_a_retry(publisher: AnyPublisher, *, within: float = PATIENCE) -> str:
    """Publish one message, in vain, and close; the words of an error that buries nothing."""
    publishing = asyncio.ensure_future(publish_in_vain(publisher))
    await asyncio.wait([publishing], timeout=within)
    in_time = publishing.done()
    try:
        words = await publishing
    finally:
        async with asyncio.timeout(PATIENCE):
            await publisher.close()
    assert in_time, f"the publish did not end by itself within {within:g} seconds"
    return words


async def publish_in_vain(publisher: AnyPublisher) -> str:
    """As `worth_a_retry`; the publisher stays open."""
    answer = await publish_one(publisher, make_message())
    assert isinstance(answer, RetryableError | DestinationUnavailable), repr(answer)
    assert str(answer), "an error without words helps nobody"
    return str(answer)


async def publish_until_taken(publisher: AnyPublisher) -> None:
    """Publish one message after the other, until the destination takes one."""
    answer: PublishError | None = None
    try:
        async with asyncio.timeout(PATIENCE):
            while (answer := await publish_one(publisher, make_message())) is not None:
                assert isinstance(answer, RetryableError | DestinationUnavailable), repr(answer)
                await asyncio.sleep(0.05)
    except TimeoutError:
        pytest.fail(f"nothing was taken within {PATIENCE:g} seconds; the last answer: {answer!r}")


async def publish_after_close(publisher: AnyPublisher) -> None:
    """Publish one message with a publisher that was closed: nothing was sent."""
    answer = await publish_one(publisher, make_message())
    assert isinstance(answer, DestinationUnavailable), f"after close: {answer!r}"
