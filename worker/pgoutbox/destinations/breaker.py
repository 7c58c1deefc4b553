"""When a destination is not to be tried. A pure state machine: the clock is passed in.

Two questions: is it down for everybody (then attempts are refunded, and it is tried gently), or
is it one message that it cannot stand (then that message's attempts are spent like any other's)?
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

State: TypeAlias = Literal["closed", "open", "half_open"]

GONE_PAUSE = 3600.0
FAILING_SECONDS = 60.0
"""After so long without a success two messages are as good as many."""
REMEMBERED = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class BreakerLimits:
    """When it opens, and for how long. Durations in seconds."""

    failures: int = 10
    """Different messages that failed, with no success between them."""
    pause: float = 0.5
    """The first one; each probe that fails doubles it."""
    max_pause: float = 30.0


@dataclass(slots=True)
class Breaker:
    """One destination in one worker: closed, open for a pause, half open for one message."""

    limits: BreakerLimits = field(default_factory=BreakerLimits)
    _successes: int = 0
    _failing: set[int] = field(default_factory=set)
    """Messages that failed since the last success, as many as it takes to open."""
    _failing_since: float = 0.0
    _pause: float = 0.0
    _open_until: float | None = None
    """None: closed."""
    _seen: OrderedDict[int, int] = field(default_factory=OrderedDict)
    """Successes at the time when a message failed; the oldest are forgotten."""

    def reached(self) -> None:
        """The destination took a message."""
        self._successes += 1
        self._failing.clear()
        self._pause = 0.0
        self._open_until = None

    def failed(self, message_row: int, now: float, *, retry_after: float = 0.0) -> bool:
        """A message failed. True: that is the message's own fault, as far as can be known.

        ``retry_after``: seconds for which the destination asked to be left alone.
        """
        special = self._is_special(message_row)
        self._note(None if special else message_row, now, retry_after)
        return special or self._open_until is None

    def unreached(self, message_row: int, now: float) -> bool:
        """As `failed`, where nothing was sent: blamed only on one that differs from the others.

        As no attempt depends on it, the same message counts each time.
        """
        special = self._is_special(message_row)
        self._note(None if special else -1 - len(self._failing), now, 0.0)
        return special

    def gone(self, now: float) -> None:
        """The destination said that nothing is wanted there any more."""
        self._open_until = now + GONE_PAUSE

    @property
    def is_open(self) -> bool:
        """Whether it is open or half open."""
        return self._open_until is not None

    def state(self, now: float) -> State:
        """Closed: all is well. Half open: one message may try."""
        if self._open_until is None:
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
        return max(0.0, (self._open_until or now) - now)

    def _is_special(self, message_row: int) -> bool:
        """Whether others got through since it last failed."""
        before = self._seen.pop(message_row, None)
        self._seen[message_row] = self._successes
        if len(self._seen) > REMEMBERED:
            self._seen.popitem(last=False)
        return before is not None and self._successes > before

    def _note(self, failing: int | None, now: float, retry_after: float) -> None:
        """One more that fails. None says nothing about the others, unless it was to find out."""
        state = self.state(now)
        if failing is not None:
            if not self._failing:
                self._failing_since = now
            if len(self._failing) < self.limits.failures:
                self._failing.add(failing)
        if state == "half_open" or (state == "closed" and self._enough(now)):
            self._leave_alone(now, retry_after)

    def _enough(self, now: float) -> bool:
        if len(self._failing) >= self.limits.failures:
            return True
        return len(self._failing) > 1 and now - self._failing_since >= FAILING_SECONDS

    def _leave_alone(self, now: float, retry_after: float) -> None:
        limits = self.limits
        self._pause = min(self._pause * 2 or limits.pause, limits.max_pause)
        self._open_until = now + max(self._pause, min(retry_after, limits.max_pause))
