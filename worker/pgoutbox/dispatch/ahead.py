"""What is claimed before there is a slot for it, so that no slot waits for the next claim."""

from __future__ import annotations

from collections import deque
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pgoutbox.destinations.destination import Destination
    from pgoutbox.dispatch.flight import Flight, InFlight

AHEAD_SECONDS = 0.1
"""As many wait as the slots get through in this time: some claims' worth."""
LONGEST_WAIT = 1.0
"""Seconds after which what could not be begun goes back: others may have a slot for it."""
WEIGHT = 0.1
"""Of the newest publish in the mean of their durations."""
PARTS = 4
SMALL = 100
"""A large batch takes such a part of the slots at most, so that others are under way when it ends;
a small one costs less whole."""


class Ahead:
    """One destination's messages without an ordering key that are held and not begun.

    Only while it works and nothing limits it: what waits here costs a write to give back.
    """

    def __init__(self, destination: Destination, in_flight: InFlight, *, batched: bool) -> None:
        self._destination = destination
        self._in_flight = in_flight
        part = -(-destination.concurrency // PARTS)
        self._least, self._most = (part, max(part, SMALL)) if batched else (1, 1)
        """Of a batch. Fewer only where no more are to be had soon, see `_gathers`."""
        self._waiting: deque[Flight] = deque()
        self._seconds: float | None = None
        self.limit = destination.concurrency
        """Slots that messages without an ordering key may take; lanes may want some."""

    def __len__(self) -> int:
        return len(self._waiting)

    def observe(self, seconds: float) -> None:
        """One publish took so long."""
        before = seconds if self._seconds is None else self._seconds
        self._seconds = before + WEIGHT * (seconds - before)

    def room(self, spare: int) -> int:
        """How many more are worth claiming, of ``spare`` that nobody else needs.

        None before half of what waits is used up, or claims would be many and small.
        """
        if not self._seconds or not self._destination.unhindered:
            return 0
        waiting = len(self._waiting)
        pays = int(self._destination.concurrency * AHEAD_SECONDS / self._seconds)
        most = min(pays, waiting + spare)
        return most - waiting if 2 * waiting <= most else 0

    @property
    def promised(self) -> int:
        """Free slots that are for what waits."""
        return max(min(len(self._waiting), self._free()), 0)

    @contextmanager
    def held_up(self) -> Iterator[None]:
        """Meanwhile nothing begins."""
        limit, self.limit = self.limit, 0
        try:
            yield
        finally:
            self.limit = limit

    def put(self, flights: Sequence[Flight]) -> None:
        """These wait, behind those that do already."""
        self._waiting.extend(flights)

    def begin(self, *, at_once: bool = False) -> Iterator[list[Flight]]:
        """What has a slot by now, in order: each list is one publish.

        ``at_once``: however few they are.
        """
        if not self._waiting:
            return
        free = self._free()
        if not at_once and self._gathers(free):
            return
        while free > 0 and (batch := self._take(min(free, self._most))):
            free -= len(batch)
            yield batch

    def is_late(self, before: float) -> bool:
        """Whether some have waited since ``before``."""
        return bool(self._waiting) and self._waiting[0].started <= before

    def late(self, before: float) -> list[Flight]:
        """Those that have waited since ``before``, which wait no longer."""
        gone: list[Flight] = []
        while self.is_late(before):
            gone.append(self._waiting.popleft())
        if gone:
            # It does not get through what it did: nothing more ahead before another one has ended.
            self._seconds = None
        return [flight for flight in gone if flight.publishing]

    def clear(self) -> list[Flight]:
        """All that wait, which wait no longer."""
        return self._take(len(self._waiting))

    def _gathers(self, free: int) -> bool:
        """Whether the free slots are too few for a batch, and more will fall free.

        Or batches would become ever smaller: each frees only its own slots. But what leaves slots
        free is all that there is, and what was let through a limit is for now.
        """
        return (
            free < self._least
            and free <= len(self._waiting)
            and self._destination.unhindered
            and self._in_flight.ending_at(self._destination.name) > 0
        )

    def _free(self) -> int:
        name = self._destination.name
        free = self._destination.concurrency - self._in_flight.publishing_to(name)
        return min(free, self.limit - self._in_flight.unordered(name))

    def _take(self, count: int) -> list[Flight]:
        taken: list[Flight] = []
        while self._waiting and len(taken) < count:
            flight = self._waiting.popleft()
            # It may have been lost while it waited.
            if flight.publishing:
                taken.append(flight)
        return taken
