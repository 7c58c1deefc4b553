"""When a destination is not to be tried. A pure state machine: the clock is passed in.

Two questions: is it down for everybody (then attempts are refunded, and it is tried gently), or
is it one message that it cannot stand (then that message's attempts are spent like any other's)?
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field
from typing import Literal

OPEN_AFTER = 5
"""Messages in a row that found nobody there, before the destination is left alone."""
FIRST_PAUSE = 0.5
LONGEST_PAUSE = 30.0
REMEMBERED = 10_000


@dataclass(slots=True)
class Breaker:
    """One destination in one worker: closed, open for a pause, half open for one message."""

    _successes: int = 0
    _unreached: int = 0
    _pause: float = FIRST_PAUSE
    _open_until: float = 0.0
    _seen: OrderedDict[int, int] = field(default_factory=OrderedDict)
    """Successes at the time when a message found nobody there; the oldest are forgotten."""

    def reached(self) -> None:
        """The destination took a message, or told why it does not."""
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
        if self._unreached >= OPEN_AFTER and now >= self._open_until:
            self._open_until = now + self._pause
            self._pause = min(self._pause * 2, LONGEST_PAUSE)
        return before is not None and self._successes > before

    def state(self, now: float) -> Literal["closed", "open", "half_open"]:
        """Closed: all is well. Half open: one message may try."""
        if self._unreached < OPEN_AFTER:
            return "closed"
        return "open" if now < self._open_until else "half_open"

    def allowance(self, slots: int, publishing: int, now: float) -> int:
        """How many of ``slots`` may be filled while ``publishing`` are on their way."""
        match self.state(now):
            case "closed":
                return slots
            case "half_open" if not publishing:
                return min(slots, 1)
            case _:
                return 0

    def half_opens_in(self, now: float) -> float:
        """Seconds until a message may try; 0 unless it is open."""
        return self._open_until - now if self.state(now) == "open" else 0.0
