"""When to look for work: on a notification, and by polling as the net under it.

Polling is quick after work and slows down to ``max_interval`` when there is none. Notifications
are asked for only while somebody sleeps: a transaction that notifies holds a lock of the whole
server through its commit, which costs busy producers more than polling costs anybody.
"""

from __future__ import annotations

import asyncio
import random
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pgoutbox.database.pool import Database

FIRST_INTERVAL = 0.005
SLEEPY_AFTER = 0.1
"""Seconds without a row after which notifications are asked for."""
QUIET_RATE = 150.0
LOUD_RATE = 300.0
"""Notifications per second above which they are switched off; below the quiet rate of rows, on."""
RATE_WINDOW = 1.0
MAX_DEBOUNCE = 0.02
DEBOUNCE_STEP = 0.001

# One row; touched only when the answer changes, so that an idle fleet writes nothing.
SWITCH = b"""
UPDATE outbox_wakeup SET wanted = %(wanted)s, changed_at = now() WHERE wanted <> %(wanted)s
"""


@dataclass(slots=True)
class Rate:
    """Events per second over the last whole window."""

    per_second: float = 0.0
    _count: int = 0
    _since: float = field(default_factory=time.monotonic)

    def add(self, count: int, now: float) -> None:
        """Count ``count`` events at ``now`` (monotonic seconds)."""
        elapsed = now - self._since
        if elapsed >= RATE_WINDOW:
            self.per_second = self._count / elapsed
            self._count, self._since = 0, now
        self._count += count


class Wakeup:
    """The claim loop's alarm clock."""

    def __init__(self, *, max_interval: float, notify_possible: bool) -> None:
        self._max_interval = max_interval
        self._notify_possible = notify_possible
        self._listening = False
        self._interval = FIRST_INTERVAL
        self._rung = asyncio.Event()
        self._notified = False
        self._in_vain = 0
        self._last_found = time.monotonic()
        self._rows = Rate()
        self._notifications = Rate()
        self._wanted: bool | None = None

    def listening(self, *, active: bool) -> None:
        """The listener reports whether notifications arrive at all."""
        self._listening = active
        self._wanted = None
        self.ring()

    def notified(self) -> None:
        """A notification for one of our destinations arrived."""
        self._notifications.add(1, time.monotonic())
        self._notified = True
        self._rung.set()

    @property
    def asleep(self) -> bool:
        """Whether this worker counts on notifications at the moment."""
        return self._wanted is True and time.monotonic() - self._last_found >= SLEEPY_AFTER

    def ring(self) -> None:
        """Look for work now, whatever the clock says."""
        self._interval = FIRST_INTERVAL
        self._rung.set()

    def nudge(self) -> None:
        """There is room for what is known to be waiting."""
        self._rung.set()

    def found(self, count: int) -> None:
        """The claim loop reports what its last claim brought."""
        now = time.monotonic()
        self._rows.add(count, now)
        if count:
            self._last_found = now
            self._interval = FIRST_INTERVAL
            self._in_vain = 0
        else:
            self._interval = min(self._interval * 2, self._max_interval)
            self._in_vain += self._notified
        self._notified = False

    async def switch(self, db: Database) -> bool:
        """Ask for notifications, or ask for silence, where that has changed. True: just asked.

        Whoever asked must claim once more before sleeping, for what was committed meanwhile.
        """
        wanted = self._decide(time.monotonic())
        if wanted is None or wanted == self._wanted:
            return False
        await db.execute(SWITCH, {"wanted": wanted})
        self._wanted = wanted
        return wanted

    def _decide(self, now: float) -> bool | None:
        if not (self._notify_possible and self._listening):
            return None
        self._rows.add(0, now)
        self._notifications.add(0, now)
        if self._notifications.per_second > LOUD_RATE:
            return False
        sleepy = now - self._last_found >= SLEEPY_AFTER
        if sleepy or self._rows.per_second < QUIET_RATE:
            return True
        return None

    async def wait(self) -> None:
        """Return at the next notification, ring or poll, whichever is first."""
        # A little less, so that workers started together drift apart.
        interval = self._interval * random.uniform(0.9, 1.0)  # noqa: S311 - no secret
        try:
            async with asyncio.timeout(interval):
                await self._rung.wait()
        except TimeoutError:
            return
        finally:
            self._rung.clear()
        # Every notification reaches every worker. One that keeps coming too late steps back.
        if self._notified and self._in_vain:
            await asyncio.sleep(min(self._in_vain * DEBOUNCE_STEP, MAX_DEBOUNCE))
