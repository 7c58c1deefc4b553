"""When to look for work: on a notification, and by polling as the net under it.

Polling is quick after work and slows down to ``max_interval`` when there is none. Notifications
are asked for only while that costs little: a transaction that notifies holds a lock of the whole
server through its commit, which costs busy producers more than polling costs anybody.
"""

from __future__ import annotations

import asyncio
import random
import time
from typing import TYPE_CHECKING

from psycopg import ProgrammingError

from pgoutbox.dispatch.loudness import RATE_WINDOW, SILENT_INTERVAL, Loudness

if TYPE_CHECKING:
    from pgoutbox.database.pool import Database

FIRST_INTERVAL = 0.005
MEND_SECONDS = 5.0
"""How often whoever counts on being woken makes sure that nobody left the switch off."""
MAX_DEBOUNCE = 0.02
DEBOUNCE_STEP = 0.001

# One row; touched only when the answer changes, so that an idle fleet writes nothing.
SWITCH = b"""
UPDATE outbox_wakeup SET wanted = %(wanted)s, changed_at = now() WHERE wanted <> %(wanted)s
"""

# A commit that notifies takes this lock until it is flushed: that of "no database in particular",
# one for the whole server. Every role sees who waits for it.
QUEUED = b"""
SELECT count(*) FROM pg_locks
 WHERE locktype = 'object' AND database = 0 AND classid = 'pg_database'::regclass AND objid = 0
   AND NOT granted
"""


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
        self._loudness = Loudness(time.monotonic())
        self._wanted: bool | None = None
        self._said_at = 0.0
        self._may_look = True

    def listening(self, *, active: bool) -> None:
        """The listener reports whether notifications arrive at all."""
        self._listening = active
        self._wanted = None
        self.ring()

    def heard(self) -> None:
        """A notification arrived, whoever it is for."""
        self._loudness.heard(1, time.monotonic())

    def notified(self) -> None:
        """It was for one of our destinations."""
        self._notified = True
        self._rung.set()

    @property
    def is_notified(self) -> bool:
        """Whether there was a notification since the last claim."""
        return self._notified

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
        self._loudness.found(count, now)
        if count:
            self._interval = FIRST_INTERVAL
            self._in_vain = 0
        else:
            longest = min(self._max_interval, SILENT_INTERVAL)
            if not self._loudness.silent(now):
                longest = self._max_interval
            self._interval = min(self._interval * 2, longest)
            self._in_vain += self._notified
        self._notified = False

    async def switch(self, db: Database) -> bool:
        """Ask for notifications, or ask for silence, where that has changed. True: just asked.

        Whoever asked must claim once more before sleeping, for what was committed meanwhile.
        """
        if not (self._notify_possible and self._listening):
            return False
        if self._may_look and self._loudness.curious(time.monotonic()):
            await self._look(db)
        now = time.monotonic()
        wanted = self._loudness.wanted(now)
        if wanted is None:
            return False
        changed = wanted != self._wanted
        if not (changed or self._doubtful(now)):
            return False
        touched = await db.execute(SWITCH, {"wanted": wanted})
        self._wanted, self._said_at = wanted, now
        return wanted and (changed or touched > 0)

    async def _look(self, db: Database) -> None:
        try:
            [(waiting,)] = await db.fetch(QUEUED)
        except ProgrammingError:
            # Somebody took the right to see locks from everybody. The rate is still judged.
            self._may_look = False
        else:
            self._loudness.looked(waiting, time.monotonic())

    def _doubtful(self, now: float) -> bool:
        """Whether somebody else may have said the opposite meanwhile."""
        silence = now - self._said_at
        if self._wanted:
            return silence >= MEND_SECONDS and self._loudness.sleepy(now)
        return silence >= RATE_WINDOW and self._loudness.loud(now)

    async def wait(self) -> None:
        """Return at the next notification, ring or poll, whichever is first."""
        # A little less, so that workers started together drift apart.
        interval = self._interval * random.uniform(0.9, 1.0)  # noqa: S311 - no secret
        try:
            async with asyncio.timeout(interval):
                await self._rung.wait()
            # Every notification reaches every worker. One that keeps coming too late steps back;
            # a single time was only our own poll, which came before the notification.
            if self._notified and self._in_vain > 1:
                await asyncio.sleep(min((self._in_vain - 1) * DEBOUNCE_STEP, MAX_DEBOUNCE))
        except TimeoutError:
            return
        finally:
            # The claim that follows sees whatever was committed until now.
            self._rung.clear()
