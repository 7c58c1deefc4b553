"""Hand a message to its publisher and turn what happens into an outcome.

Publishers raise the four public exceptions. Everything else is a bug in the publisher and
leaves this module as it is, wrapped in `Unclassified`, so that nobody mistakes it for weather.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, cast

from pgoutbox.errors import (
    Defer,
    DestinationGone,
    DestinationUnavailable,
    PermanentError,
    PgOutboxError,
    PublishError,
    RetryableError,
)
from pgoutbox.outcome import (
    Deferred,
    PermanentFailure,
    Published,
    RetryableFailure,
    Unavailable,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pgoutbox.message import ClaimedMessage
    from pgoutbox.outcome import Outcome
    from pgoutbox.publisher import BatchPublisher, Publisher

PUBLISHED = Published()


class Unclassified(PgOutboxError):  # noqa: N818 - what it is, not that it is one
    """The publisher raised something that is none of the four; ``__cause__`` is what."""


async def publish_all(
    messages: Sequence[ClaimedMessage], publisher: Publisher | BatchPublisher, *, batched: bool
) -> Sequence[Outcome | Unclassified]:
    """As one batch, or the only one; ``batched`` says which of the two the publisher takes."""
    if batched:
        return await publish_batch(messages, cast("BatchPublisher", publisher))
    return [await publish(messages[0], cast("Publisher", publisher))]


async def publish(message: ClaimedMessage, publisher: Publisher) -> Outcome:
    """One message. Raises `Unclassified`, or CancelledError when its time is up.

    The time is kept by `pgoutbox.dispatch.keeper`, one clock for all publishes: a timer of its
    own for each would cost more than the rest of a delivery.
    """
    try:
        await publisher.publish(message)
    except BaseException as error:  # noqa: BLE001 - judged there, and raised where it is due
        return failed(error)
    return PUBLISHED


async def publish_batch(
    messages: Sequence[ClaimedMessage], publisher: BatchPublisher
) -> Sequence[Outcome | Unclassified]:
    """As `publish` for several messages in one request; one outcome each, in order.

    An answer that is none of those allowed is a bug that concerns one message: it comes in that
    message's place, so that what is known of the others is not lost.
    """
    try:
        # A tuple: what it shortens in place must not look as if it had been published.
        answers = list(await publisher.publish_batch(tuple(messages)))
    except BaseException as error:  # noqa: BLE001 - judged there, and raised where it is due
        return [failed(error)] * len(messages)
    if len(answers) != len(messages):
        raise Unclassified(f"{len(answers)} answers to a batch of {len(messages)} messages")
    return [_answered(answer) for answer in answers]


def _answered(answer: object) -> Outcome | Unclassified:
    try:
        return PUBLISHED if answer is None else observed(answer)
    except Unclassified as error:
        return error


def failed(error: BaseException) -> Outcome:
    """The outcome of whatever a publisher raised. Raises `Unclassified`, or our own cancellation.

    SystemExit and KeyboardInterrupt are no exception: raised here they come from the publisher, and
    would end the process without a drain.
    """
    match error:
        case PublishError():
            return observed(error)
        case TimeoutError():
            return RetryableFailure(f"timed out: {describe(error)}")
        case asyncio.CancelledError() if cancelled_by_us():
            raise error
        case asyncio.CancelledError():
            raise Unclassified("the publisher's own work was cancelled") from error
        case _:
            raise Unclassified(describe(error)) from error


def cancelled_by_us() -> bool:
    """Whether somebody cancelled the publish, rather than something that it waited for."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


def observed(error: object) -> Outcome:
    """The outcome that one of the four exceptions stands for. Raises `Unclassified` for others.

    ``works_for_others`` is not the publisher's to know; the destination fills it in.
    """
    match error:
        case RetryableError():
            return RetryableFailure(describe(error), error.retry_after, throttled=error.throttled)
        case PermanentError():
            return PermanentFailure(describe(error), gone=isinstance(error, DestinationGone))
        case Defer():
            return Deferred(error.delay.total_seconds(), str(error))
        case DestinationUnavailable():
            return Unavailable(describe(error), works_for_others=False)
        case BaseException():
            raise Unclassified(describe(error)) from error
        case _:
            raise Unclassified(f"an answer that is neither None nor an error: {error!r}")


def describe(error: BaseException) -> str:
    """The message, or the type's name where the exception has none that can be had."""
    try:
        return str(error) or type(error).__name__
    except Exception:  # noqa: BLE001 - somebody else's __str__
        return type(error).__name__
