"""How fully the worker is used: what the scaling law tells a replica's capacity by."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


class Usage:
    """Seconds of full use, over the life of the process.

    A worker is full as soon as one of its destinations fills its slots, since no backlog of that
    one would get through any faster, or as soon as all together fill the worker. What waits for a
    slot counts as nothing.
    """

    def __init__(self, limit: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._limit = limit
        """Messages that the worker may hold."""
        self._clock = clock
        self._slots: dict[str, _Slots] = {}
        self._seconds = 0.0

    def changed(self, destination: str, publishing: int) -> None:
        """So many messages are on their way to it from now on."""
        slots = self._slots.get(destination)
        if slots is None:
            slots = self._slots[destination] = _Slots()
        slots.change(self._clock(), publishing)

    def seconds(self, concurrency: Mapping[str, int]) -> float:
        """Up to now; ``concurrency`` is what each destination has in slots.

        Since the last call the fullest destination counts. Not the fullest one of each moment: two
        that take turns leave room to each.
        """
        now = self._clock()
        used = {name: slots.used(now) for name, slots in self._slots.items()}
        shares = [seconds / max(concurrency[name], 1) for name, seconds in used.items()]
        self._seconds += max([*shares, sum(used.values()) / self._limit])
        return self._seconds


class _Slots:
    """Of one destination, integrated over time."""

    __slots__ = ("_publishing", "_seconds", "_since")

    def __init__(self) -> None:
        self._publishing = 0
        self._seconds = 0.0
        self._since = 0.0

    def change(self, now: float, publishing: int) -> None:
        self._seconds += self._publishing * (now - self._since)
        self._publishing, self._since = publishing, now

    def used(self, now: float) -> float:
        """Slot-seconds since this was asked last."""
        self.change(now, self._publishing)
        seconds, self._seconds = self._seconds, 0.0
        return seconds
