"""Whether notifications are worth asking for. No clock and no database: both are told to it.

The switch belongs to the whole fleet, and so does the rate that it is turned off for: everybody
hears every notification. Once it is off nobody knows that rate any more, and a worker's own share
of the rows says nothing about it. So silence lasts a good while, and then the rate is measured
again, unless the worker can tell that there is no load left.

Too many is also what others cannot bear. A transaction that notifies keeps the next one waiting
until its commit is flushed, so where flushes are slow the notifications themselves keep the load
below any rate that could be called loud. Whether commits wait is looked at now and then.
"""

from __future__ import annotations

SLEEPY_AFTER = 0.1
"""Seconds without a row after which a worker counts on being woken."""
LOUD_RATE = 300.0
"""Notifications per second, of all destinations together, that are too many."""
QUEUE_RATE = 50.0
"""Notifications per second from which on it is looked whether commits wait for each other."""
QUEUE_LOOK_SECONDS = 1.0
QUEUE_LOOKS = 2
"""So many looks in a row that find commits waiting are as good as a loud rate: one is chance."""
SILENCE_SECONDS = 30.0
"""How long they stay off then, at most."""
CALM_AFTER = 3.0
"""Seconds without a row that end the silence early. Among many who share a load each finds less, so
that the moment after which one is sleepy proves nothing."""
SILENT_INTERVAL = 0.1
"""Seconds between two polls in the silence, at most: nobody is woken, and calm has to be proven."""
RATE_WINDOW = 1.0


class Rate:
    """Events per second over the last whole window."""

    def __init__(self, now: float) -> None:
        self.per_second = 0.0
        self._count = 0
        self._since = now

    def add(self, count: int, now: float) -> None:
        """Count ``count`` events at ``now`` (seconds)."""
        elapsed = now - self._since
        if elapsed >= RATE_WINDOW:
            self.per_second = self._count / elapsed
            self._count, self._since = 0, now
        self._count += count


class Loudness:
    """One worker's opinion on the switch. All times are monotonic seconds."""

    def __init__(self, now: float) -> None:
        self._heard = Rate(now)
        self._rows = Rate(now)
        self._last_found = now
        self._silent_until = now
        self._looked_at = now
        self._queues = 0
        """Looks in a row that found commits waiting."""

    def heard(self, count: int, now: float) -> None:
        """So many notifications arrived, whoever they are for."""
        self._heard.add(count, now)

    def found(self, count: int, now: float) -> None:
        """A claim brought so many rows."""
        self._rows.add(count, now)
        if count:
            self._last_found = now

    def curious(self, now: float) -> bool:
        """Whether it is time to look if commits wait for each other to notify."""
        self._heard.add(0, now)
        if self._heard.per_second <= QUEUE_RATE:
            self._queues = 0
            return False
        return now - self._looked_at >= QUEUE_LOOK_SECONDS

    def looked(self, waiting: int, now: float) -> None:
        """So many commits were waiting."""
        self._looked_at = now
        self._queues = self._queues + 1 if waiting else 0

    def sleepy(self, now: float) -> bool:
        """Whether there has been nothing to do for a moment."""
        return now - self._last_found >= SLEEPY_AFTER

    def loud(self, now: float) -> bool:
        """Whether the last whole window had too many notifications, or too expensive ones."""
        self._heard.add(0, now)
        return self._heard.per_second > LOUD_RATE or self._queues >= QUEUE_LOOKS

    def silent(self, now: float) -> bool:
        """Whether there may be a load that would be too loud."""
        return now < self._silent_until and now - self._last_found < CALM_AFTER

    def wanted(self, now: float) -> bool | None:
        """Whether producers are to notify; None: as it is."""
        self._rows.add(0, now)
        if self.loud(now):
            self._silent_until = now + SILENCE_SECONDS
            return False
        if self.silent(now):
            return False
        self._silent_until = now
        # Whoever takes that many alone need not ask how many there are.
        if self._rows.per_second > LOUD_RATE and not self.sleepy(now):
            return None
        return True
