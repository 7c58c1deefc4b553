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
MOST_PROBES = 32
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
    """One destination in one worker: closed, open for a pause, half open for a few messages."""

    limits: BreakerLimits = field(default_factory=BreakerLimits)
    _successes: int = 0
    _failing: set[int] = field(default_factory=set)
    """Messages that failed since the last success, as many as it takes to open."""
    _unreached: int = 0
    """How often nobody was there since then."""
    _failing_since: float = 0.0
    _pause: float = 0.0
    _probes: int = 1
    """Messages that may try at once when it is half open."""
    _open_until: float | None = None
    """None: closed."""
    _gone_until: float = 0.0
    """Until then a success is that of a publish from before."""
    _seen: OrderedDict[int, int] = field(default_factory=OrderedDict)
    """Successes at the time when a message failed; the oldest are forgotten."""

    def reached(self, now: float) -> None:
        """The destination took a message."""
        self._successes += 1
        if now < self._gone_until:
            return
        self._failing.clear()
        self._unreached = 0
        self._pause = 0.0
        self._probes = 1
        self._open_until = None

    def failed(self, message_row: int, now: float, *, retry_after: float = 0.0) -> bool:
        """A message failed. True: that is the message's own fault, as far as can be known.

        ``retry_after``: seconds for which the destination asked to be left alone.
        """
        special = self.differs(message_row)
        if not special:
            self._failed_since(now)
            if len(self._failing) < self.limits.failures:
                self._failing.add(message_row)
        self._perhaps_open(now, retry_after)
        return special or self._open_until is None

    def unreached(self, message_row: int, now: float) -> bool:
        """As `failed`, where nothing was sent: blamed only on one that differs from the others.

        As no attempt depends on it, the same message counts each time.
        """
        special = self.differs(message_row)
        if not special:
            self._failed_since(now)
            self._unreached += 1
        self._perhaps_open(now, 0.0)
        return special

    def differs(self, message_row: int) -> bool:
        """A message was not taken: whether others got through since it last was not."""
        before = self._seen.pop(message_row, None)
        self._seen[message_row] = self._successes
        if len(self._seen) > REMEMBERED:
            self._seen.popitem(last=False)
        return before is not None and self._successes > before

    def gone(self, now: float) -> bool:
        """The destination said that nothing is wanted there any more. True: it is news."""
        if now < self._gone_until:
            return False
        self._open_until = self._gone_until = now + GONE_PAUSE
        return True

    @property
    def is_open(self) -> bool:
        """Whether it is open or half open."""
        return self._open_until is not None

    def state(self, now: float) -> State:
        """Closed: all is well. Half open: a few messages may try."""
        if self._open_until is None:
            return "closed"
        return "open" if now < self._open_until else "half_open"

    def allowance(self, slots: int, publishing: int, now: float) -> int:
        """How many of ``slots`` may be filled while ``publishing`` are on their way."""
        match self.state(now):
            case "closed":
                return slots
            case "half_open" if not publishing:
                return min(slots, self._probes)
            case _:
                return 0

    def half_opens_in(self, now: float) -> float:
        """Seconds until a message may try; 0 unless it is open."""
        return max(0.0, (self._open_until or now) - now)

    def _failed_since(self, now: float) -> None:
        if not (self._failing or self._unreached):
            self._failing_since = now

    def _perhaps_open(self, now: float, retry_after: float) -> None:
        # A message that was to find out has found out, whoever is to blame.
        state = self.state(now)
        if state == "half_open" or (state == "closed" and self._enough(now)):
            self._leave_alone(now, retry_after)

    def _enough(self, now: float) -> bool:
        failures = len(self._failing) + self._unreached
        if failures >= self.limits.failures:
            return True
        return failures > 1 and now - self._failing_since >= FAILING_SECONDS

    def _leave_alone(self, now: float, retry_after: float) -> None:
        limits = self.limits
        if self._open_until is not None:
            # More of them each time: where the first are all messages that the destination cannot
            # stand, those behind them find out that it works.
            self._probes = min(self._probes * 2, MOST_PROBES)
        self._pause = min(self._pause * 2 or limits.pause, limits.max_pause)
        self._open_until = now + max(self._pause, min(retry_after, limits.max_pause))
