"""A destination as the dispatcher sees it: its publisher, its limits, and its breaker."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from pgoutbox.destinations.breaker import Breaker
from pgoutbox.destinations.throttle import Throttle

if TYPE_CHECKING:
    from pgoutbox.destinations.rate import Rate
    from pgoutbox.publisher import BatchPublisher, Publisher


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """The limits of one destination. All durations in seconds."""

    base: float = 1.0
    cap: float = 300.0
    max_attempts: int = 12
    defer_max_age: float = 86_400.0
    dead_head: Literal["block", "skip"] = "block"
    """What a dead message does to those behind it in its lane: they wait, or go on without it."""


@dataclass(slots=True, kw_only=True)
class Destination:
    """A named target with its publisher and limits. Durations in seconds."""

    name: str
    publisher: Publisher | BatchPublisher
    concurrency: int = 50
    publish_timeout: float = 10.0
    policy: RetryPolicy = field(default_factory=RetryPolicy)
    breaker: Breaker = field(default_factory=Breaker)
    rate: Rate | None = None
    """Of this worker; None where there is no limit."""
    throttle: Throttle = field(default_factory=Throttle)
    stopped: bool = False
    """After a bug in the publisher: nothing more is claimed for it."""

    def allowance(self, publishing: int, hung: int, now: float) -> int:
        """How many more messages may begin while so many are under way, ``hung`` for good."""
        under_way = publishing - hung
        free = self.breaker.allowance(self.concurrency - publishing, under_way, now)
        free = self.throttle.allowance(free, under_way, now)
        return free if self.rate is None else min(free, self.rate.available(now))

    def opens_in(self, now: float) -> float:
        """Seconds until more may begin than now; 0 where no time is waited for."""
        paused = max(self.breaker.half_opens_in(now), self.throttle.opens_in(now))
        return max(paused, 0.0 if self.rate is None else self.rate.next_in(now))

    @property
    def unhindered(self) -> bool:
        """Whether it works, as far as is known, and takes whatever its slots have room for."""
        limited = self.rate is not None or self.throttle.limit is not None
        return not (self.stopped or limited or self.breaker.is_open)

    def within_rate(self, now: float) -> bool:
        """Whether one more may begin now, as far as the rate limit goes."""
        return self.rate is None or self.rate.allows(now)

    def began(self, count: int, now: float) -> None:
        """So many publishes began."""
        if self.rate is not None:
            self.rate.spend(count, now)
