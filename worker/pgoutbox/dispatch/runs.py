"""What this worker holds of one lane."""

from __future__ import annotations

import time
from collections import deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pgoutbox.dispatch.flight import Flight


class Run:
    """One message of it is published at a time, in order."""

    __slots__ = ("began", "current", "waiting")

    def __init__(self, waiting: Iterable[Flight]) -> None:
        self.began = time.monotonic()
        self.current: Flight | None = None
        """The one that is being published, or was the last."""
        self.waiting = deque(waiting)
        """Not started yet, in order."""
        for flight in self.waiting:
            flight.run = self

    def next(self) -> Flight | None:
        """The next one to be published; None when there is none or the run was stopped."""
        if not self.waiting:
            return None
        self.current = self.waiting.popleft()
        return self.current

    def stop(self) -> list[Flight]:
        """Publish nothing further of it; what had not been started."""
        left = [flight for flight in self.waiting if not flight.abandoned]
        self.waiting.clear()
        return left
