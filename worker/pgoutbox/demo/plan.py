"""What is to happen, and how fast. Durations in seconds."""

from __future__ import annotations

import math
from dataclasses import dataclass

from pgoutbox.errors import PgOutboxError

WORKERS = ("worker-1", "worker-2", "worker-3")

LEASE = 5.0
RENEW = 1.5
PUBLISH_TIMEOUT = 5.0
DRAIN_SOFT = 10.0
DRAIN_GRACE = 20.0

QUICKEST, SLOWEST = 0.1, 0.2
"""What the consumer takes for an ordinary answer."""
SLOW_ANSWER = 2.5
"""What it takes once: longer than a renewal, so that the lease has to be kept meanwhile."""

KILL_AT = 0.35
STOP_AT = 0.6
"""Parts of the selling time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """How long the shop sells, and how many orders a second."""

    seconds: float = 20.0
    rate: float = 80.0

    @property
    def slots(self) -> int:
        """Messages that one worker holds at most.

        Three workers are quicker than the shop and one alone is slower, so that a backlog grows.
        """
        busy = self.rate * (QUICKEST + SLOWEST) / 2
        return max(4, math.ceil(busy * 2 / 3))


class DemoFailed(PgOutboxError):  # noqa: N818 - reads better where it is caught
    """The demo could not be played to its end."""
