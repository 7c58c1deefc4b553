"""How much a claim may ask for: of unordered messages, of lanes, and beyond what has a slot.

A destination's slots belong to unordered and ordered messages alike. Where both have more than
there is room for, each gets half. Nothing is claimed ahead where lanes are due.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from pgoutbox.dispatch.deliver import Deliverer
    from pgoutbox.dispatch.scan import Scans


class Rooms:
    """Of one worker, for all of its destinations."""

    def __init__(
        self, deliverer: Deliverer, scans: Mapping[str, Scans], max_in_flight: int
    ) -> None:
        self._deliverer = deliverer
        self._scans = scans
        self._destinations = deliverer.destinations
        self._in_flight = deliverer.in_flight
        self._ahead = deliverer.ahead
        self._max_in_flight = max_in_flight
        self.limit = 0
        """Messages that one claim may bring, at most."""

    def ahead(self) -> list[str]:
        """The destinations for which it is time to claim beyond their slots."""
        hungry = [name for name, scans in self._scans.items() if scans.ready_hungry]
        if not hungry:
            return []
        spare = self._in_flight.spare(self._destinations)
        due = (name for name in hungry if self._ahead[name].room(spare))
        return [name for name in due if not self.lanes_wanted(name)]

    def divide(self, name: str) -> int:
        """Settle what unordered messages may take; how many of those that wait begin by that."""
        limit, before = self._destinations[name].concurrency, self._in_flight.unordered(name)
        if self.lanes_wanted(name):
            limit = self._half(name, self._scans[name].parity)
        self._ahead[name].limit = limit
        self._deliverer.fill(name)
        return self._in_flight.unordered(name) - before

    @contextmanager
    def kept_free(self, name: str) -> Iterator[None]:
        """Meanwhile nothing that waits takes a slot: it was asked for already."""
        try:
            with self._ahead[name].held_up():
                yield
        finally:
            self._deliverer.fill(name)

    def of_unordered(self, slots: Mapping[str, int], now: float) -> dict[str, int]:
        """By destination, those that are to wait for a slot included; no room is left out."""
        spare = self._in_flight.spare(self._destinations)
        rooms: dict[str, int] = {}
        for name, free in slots.items():
            if now < self._scans[name].quiet_until:
                continue
            if self.lanes_wanted(name):
                room = self._beside_lanes(name, free)
            else:
                more = max(min(self._ahead[name].room(spare), self.limit - free), 0)
                spare -= more
                room = free + more
            if room:
                rooms[name] = room
        return rooms

    def of_lanes(self, name: str, free: int) -> int:
        """How many lanes of the destination."""
        if not self._scans[name].ready_hungry:
            return free
        part = self._half(name, 1 - self._scans[name].parity)
        return max(0, min(free, part - self._in_flight.ordered(name)))

    def lanes_wanted(self, name: str) -> bool:
        """Whether some may be due."""
        scans = self._scans[name]
        if scans.ordered_due or scans.lanes.walking:
            return True
        # Asked several times a turn, and the lanes in flight may be many.
        hot = scans.lanes.hot
        return bool(hot) and bool(scans.lanes.tries(self._in_flight.lanes(name), 1))

    def _beside_lanes(self, name: str, free: int) -> int:
        odd = self._scans[name].parity
        taken = self._in_flight.unordered(name) + len(self._ahead[name])
        room = max(0, min(free, self._half(name, odd) - taken))
        lanes = max(0, self._half(name, 1 - odd) - self._in_flight.ordered(name))
        # What is free may be less than what both lack, as under a rate limit: then it is halved.
        return room if room + lanes <= free else min(room, (free + odd) // 2)

    def _half(self, name: str, odd: int) -> int:
        slots = min(self._destinations[name].concurrency, self._max_in_flight)
        return (slots + odd) // 2
