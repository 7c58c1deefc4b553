"""The state machine: what a row becomes, from what publishing observed.

Pure and total. A new outcome without a case here does not pass the type check.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, assert_never

from pgoutbox.dispatch.retry import (
    INTERRUPTED_DELAY,
    defer_delay,
    retry_delay,
    unavailable_delay,
)
from pgoutbox.outcome import (
    Bury,
    Deferred,
    DeferUntil,
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

if TYPE_CHECKING:
    from pgoutbox.destinations.destination import RetryPolicy
    from pgoutbox.message import ClaimedMessage
    from pgoutbox.outcome import Outcome, Transition


def decide(  # noqa: C901, PLR0911 - one case per outcome, and nothing but cases
    outcome: Outcome, message: ClaimedMessage, policy: RetryPolicy, jitter: float
) -> Transition:
    """The transition for this outcome. ``jitter`` is uniform in [0, 1)."""
    match outcome:
        case Published():
            return Finish()
        case RetryableFailure():
            return _retryable(outcome, message, policy, jitter)
        case PermanentFailure(error):
            return _bury(error, policy)
        case Deferred(_, reason) if message.age >= policy.defer_max_age:
            return _bury(f"deferred for longer than {policy.defer_max_age:g} s: {reason}", policy)
        case Deferred(delay, reason):
            return DeferUntil(defer_delay(delay, policy), f"deferred: {reason}")
        case Unavailable(error, works_for_others=True):
            return _retry_or_bury(error, message, policy, jitter, None)
        case Unavailable(error):
            return Release(unavailable_delay(message.attempts, policy, jitter), error)
        case Interrupted() if message.attempts >= policy.max_attempts:
            return Release(INTERRUPTED_DELAY, "interrupted by a drain at the last attempt")
        case Interrupted():
            return Retry(INTERRUPTED_DELAY, "interrupted by a drain")
        case Unstarted():
            return Release()
        case _:
            assert_never(outcome)


def _retryable(
    failure: RetryableFailure, message: ClaimedMessage, policy: RetryPolicy, jitter: float
) -> Transition:
    error, retry_after = failure.error, failure.retry_after
    # After that long it may as well be the messages, all of them.
    patient = message.age < policy.defer_max_age
    if patient and not failure.works_for_others:
        delay = unavailable_delay(message.attempts, policy, jitter, retry_after)
        return Release(delay, error)
    if patient and failure.throttled and message.attempts >= policy.max_attempts:
        # It comes back ever more seldom, and is not given up for that.
        return Release(retry_delay(message.attempts, policy, jitter, retry_after), error)
    return _retry_or_bury(error, message, policy, jitter, retry_after)


def _retry_or_bury(
    error: str,
    message: ClaimedMessage,
    policy: RetryPolicy,
    jitter: float,
    retry_after: float | None,
) -> Transition:
    if message.attempts >= policy.max_attempts:
        return _bury(f"gave up after {message.attempts} attempts: {error}", policy)
    return Retry(retry_delay(message.attempts, policy, jitter, retry_after), error)


def _bury(error: str, policy: RetryPolicy) -> Transition:
    return Bury(error, skipped=policy.dead_head == "skip")
