"""How fully the worker is used: what the scaling law tells a replica's capacity by."""

from __future__ import annotations

import time
from collections import defaultdict
from typing import TYPE_CHECKING

from pgoutbox.events import BreakerChanged, DestinationStopped

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pgoutbox.events import Event


class Usage:
    """Seconds of full use, over the life of the process.

    A worker is full as soon as one of its destinations fills its slots, since no backlog of that
    one would get through any faster, or as soon as what was begun and is not yet written fills the
    worker. What waits for a slot counts as nothing: it could wait in the table as well.

    The slots of a destination whose breaker is not closed, or that was stopped, count as nothing
    either: it has probes to lose and no backlog to deliver, however long they hang. They still take
    their part of the worker's room.
    """

    def __init__(self, limit: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._limit = limit
        """Messages that the worker may hold."""
        self._clock = clock
        self._room = _Taken()
        self._slots: defaultdict[str, _Taken] = defaultdict(_Taken)
        self._seconds = 0.0

    # The next two are called for each message, so they call nothing that they can do without.

    def begun(self, destination: str, count: int) -> None:
        """So many more messages are on their way to it."""
        moment = count * self._clock()
        slots, room = self._slots[destination], self._room
        slots.number += count
        slots.before -= moment
        room.number += count
        room.before -= moment

    def ended(self, destination: str, count: int) -> None:
        """So many are no longer on their way to it; they are held until they are let go."""
        slots = self._slots[destination]
        slots.number -= count
        slots.before += count * self._clock()

    def let_go(self, count: int) -> None:
        """So many of those that had begun are not held any more."""
        self._room.number -= count
        self._room.before += count * self._clock()

    def on_event(self, event: Event) -> None:
        """Which destinations have a backlog that counts."""
        match event:
            case BreakerChanged(destination, state):
                self._slots[destination].count(self._clock(), counts=state == "closed")
            case DestinationStopped(destination):
                self._slots[destination].count(self._clock(), counts=False)
            case _:
                pass

    def seconds(self, concurrency: Mapping[str, int]) -> float:
        """Up to now; ``concurrency`` is what each destination has in slots.

        Since the last call the fullest destination counts. Not the fullest one of each moment: two
        that take turns leave room to each.
        """
        now = self._clock()
        shares = [
            taken.seconds(now) / max(concurrency[name], 1) for name, taken in self._slots.items()
        ]
        # Rounding may leave a hair less than nothing.
        self._seconds += max([0.0, *shares, self._room.seconds(now) / self._limit])
        return self._seconds


class _Taken:
    """How many places are, integrated over time."""

    __slots__ = ("_counts", "_kept", "before", "number")

    def __init__(self) -> None:
        self.number = 0
        self.before = 0.0
        """Place-seconds, less ``number`` times now, so that it changes only with ``number``."""
        self._counts = True
        self._kept = 0.0

    def count(self, now: float, *, counts: bool) -> None:
        """Whether they count from now on."""
        self._elapse(now)
        self._counts = counts

    def seconds(self, now: float) -> float:
        """Place-seconds since this was asked last."""
        self._elapse(now)
        seconds, self._kept = self._kept, 0.0
        return seconds

    def _elapse(self, now: float) -> None:
        if self._counts:
            self._kept += self.before + self.number * now
        self.before = -self.number * now
