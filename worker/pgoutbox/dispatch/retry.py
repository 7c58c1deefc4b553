"""How long to wait before the next attempt. Pure: the jitter comes from outside."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pgoutbox.destinations.destination import RetryPolicy

MIN_UNAVAILABLE_DELAY = 1.0
MAX_RETRY_AFTER = 86_400.0
INTERRUPTED_DELAY = 1.0
# Beyond this the exponential passes every cap; it keeps 2 ** attempts a small number.
MAX_DOUBLINGS = 40


def full_jitter(attempts: int, policy: RetryPolicy, jitter: float) -> float:
    """``jitter * min(cap, base * 2 ** attempts)`` seconds, for a jitter in [0, 1).

    "Full jitter" of the AWS Architecture Blog's "Exponential Backoff And Jitter": after an
    outage the retries of a backlog spread over the whole interval instead of coming in waves.
    """
    ceiling = policy.base * float(1 << min(max(attempts, 0), MAX_DOUBLINGS))
    return jitter * min(policy.cap, ceiling)


def retry_delay(
    attempts: int, policy: RetryPolicy, jitter: float, retry_after: float | None
) -> float:
    """What the destination asked for, within a day, and the backoff on top.

    Never less than asked for, and not all of a backlog at the moment that all of it was told.
    """
    backoff = full_jitter(attempts, policy, jitter)
    if retry_after is None or math.isnan(retry_after):
        return backoff
    return min(max(retry_after, 0.0), MAX_RETRY_AFTER) + backoff


def unavailable_delay(
    attempts: int, policy: RetryPolicy, jitter: float, retry_after: float | None = None
) -> float:
    """As `retry_delay`, but never so short that a dead destination is tried in a tight loop."""
    return max(MIN_UNAVAILABLE_DELAY, retry_delay(attempts, policy, jitter, retry_after))


def defer_delay(delay: float, policy: RetryPolicy) -> float:
    """What the publisher asked for; longer than it may be deferred in all makes no sense."""
    return 0.0 if math.isnan(delay) else min(max(delay, 0.0), policy.defer_max_age)
