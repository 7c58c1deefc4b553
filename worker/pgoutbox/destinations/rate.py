"""How many messages a second a destination is given. Pure: the clock is passed in.

A token bucket that is asked before a claim. The libraries' limiters make a caller wait, and here
the caller would hold a lease meanwhile.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class Rate:
    """``per_second`` on average, and after a quiet time at most a second's worth at once."""

    per_second: float
    _tokens: float = 0.0
    _at: float | None = None

    def available(self, now: float) -> int:
        """How many may begin now: none, or enough to be worth a claim."""
        self._refill(now)
        return int(self._tokens) if self._tokens >= self._least else 0

    def allows(self, now: float) -> bool:
        """Whether one that is claimed already may begin."""
        self._refill(now)
        return self._tokens >= 1

    def spend(self, count: int, now: float) -> None:
        """So many began. More than were available are made up for later."""
        self._refill(now)
        self._tokens -= count

    def next_in(self, now: float) -> float:
        """Seconds until some are available; 0 if they are now."""
        self._refill(now)
        return max(0.0, (self._least - self._tokens) / self.per_second)

    @property
    def _least(self) -> float:
        # Ten claims a second, not one for each message.
        return max(1.0, self.per_second / 10)

    def _refill(self, now: float) -> None:
        burst = max(1.0, self.per_second)
        if self._at is None:
            self._tokens = burst
        else:
            # Rounded, or a wait of exactly what is missing could end a hair too early.
            gained = max(0.0, now - self._at) * self.per_second
            self._tokens = min(burst, round(self._tokens + gained, 9))
        self._at = now
