"""Virtual time: what is to happen, in order."""

from __future__ import annotations

from heapq import heappop, heappush
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable


class Clock:
    """Calls what is due, in the order of time and, at the same moment, of asking."""

    def __init__(self) -> None:
        self.now = 0.0
        self.events: list[tuple[float, int, Callable[..., object], tuple[Any, ...]]] = []
        self.asked = 0

    def at(self, when: float, call: Callable[..., object], *given: object) -> None:
        """Call it then."""
        self.asked += 1
        heappush(self.events, (when, self.asked, call, given))

    def run(self, end: float) -> None:
        """Everything that is due before ``end``."""
        events = self.events
        while events and events[0][0] < end:
            self.now, _, call, given = heappop(events)
            call(*given)
        self.now = end
