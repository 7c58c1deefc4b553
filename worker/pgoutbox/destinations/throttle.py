"""How many messages at once a destination with a limit of its own can take. Pure.

Additive increase, multiplicative decrease, as TCP finds its share of a line (Chiu and Jain, 1989),
with a pause after each "too many requests".
"""

from __future__ import annotations

from dataclasses import dataclass

FIRST_HOLD = 0.5
LONGEST_HOLD = 30.0


@dataclass(slots=True)
class Throttle:
    """One destination in one worker. ``limit`` is None while it never complained."""

    limit: float | None = None
    _held_until: float = 0.0
    _hold: float = 0.0

    def slowed(self, publishing: int, retry_after: float, now: float) -> None:
        """It said "too many requests", with so many publishes under way.

        ``retry_after``: seconds for which it asked to be left alone; 0 where it did not say.
        """
        if now < self._held_until:
            # Told at the same time as the one that was heard already.
            return
        before = self.limit if self.limit is not None else float(max(publishing, 1))
        self.limit = max(1.0, before / 2)
        self._hold = min(self._hold * 2 or FIRST_HOLD, LONGEST_HOLD)
        self._held_until = now + min(max(self._hold, retry_after), LONGEST_HOLD)

    def took(self, concurrency: int) -> None:
        """It took a message; one more at a time for each round of them."""
        self._hold = 0.0
        if self.limit is not None:
            self.limit += 1 / self.limit
            if self.limit >= concurrency:
                self.limit = None

    def allowance(self, free: int, publishing: int, now: float) -> int:
        """How many of ``free`` slots may be filled while so many publishes are under way."""
        if now < self._held_until:
            return 0
        return free if self.limit is None else max(0, min(free, int(self.limit) - publishing))

    def opens_in(self, now: float) -> float:
        """Seconds until it may be given more; 0 if that depends on no clock."""
        return max(0.0, self._held_until - now)
