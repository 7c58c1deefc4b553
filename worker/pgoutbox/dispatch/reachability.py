"""What this worker knows of a destination that could not be reached. Pure: the clock is passed in.

Two questions: is it down for everybody (then attempts are refunded, and it is tried gently), or
is it one message that it cannot stand (then that message's attempts are spent like any other's)?
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field

CLOSE_AFTER = 5
"""Messages in a row that found nobody there, before the destination is tried one by one."""
FIRST_PAUSE = 0.5
LONGEST_PAUSE = 30.0
REMEMBERED = 10_000


@dataclass(slots=True)
class Reachability:
    """Counts of one destination in one worker."""

    _successes: int = 0
    _unreached: int = 0
    _pause: float = FIRST_PAUSE
    _closed_until: float = 0.0
    _seen: OrderedDict[int, int] = field(default_factory=OrderedDict)
    """Successes at the time when a message found nobody there; the oldest are forgotten."""

    def reached(self) -> None:
        """The destination answered, with whatever answer."""
        self._successes += 1
        self._unreached = 0
        self._pause = FIRST_PAUSE

    def unreached(self, message_row: int, now: float) -> bool:
        """A message found nobody there. True: others got through since the last time it did."""
        before = self._seen.pop(message_row, None)
        self._seen[message_row] = self._successes
        if len(self._seen) > REMEMBERED:
            self._seen.popitem(last=False)
        self._unreached += 1
        if self._unreached >= CLOSE_AFTER and now >= self._closed_until:
            self._closed_until = now + self._pause
            self._pause = min(self._pause * 2, LONGEST_PAUSE)
        return before is not None and self._successes > before

    def allowance(self, slots: int, publishing: int, now: float) -> int:
        """How many of ``slots`` may be filled: all, or while it is down one after each pause."""
        if self._unreached < CLOSE_AFTER:
            return slots
        if now < self._closed_until or publishing:
            return 0
        return min(slots, 1)

    def reopens_in(self, now: float) -> float:
        """Seconds until `allowance` may grow by itself; 0 when it is open."""
        return max(0.0, self._closed_until - now) if self._unreached >= CLOSE_AFTER else 0.0
