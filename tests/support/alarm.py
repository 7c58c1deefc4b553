"""A wakeup with a hand on its clock, and the switch that it writes its answers to."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from pgoutbox.dispatch.wakeup import Wakeup

if TYPE_CHECKING:
    from pgoutbox.database.pool import Database


class Clock:
    """A monotonic clock that a test moves."""

    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        return self.now


class Switch:
    """Where the answers go that change."""

    def __init__(self) -> None:
        self.asked: list[bool] = []
        self.on = False
        self.waiting = 0
        self.looks = 0

    async def fetch(self, _statement: bytes) -> list[tuple[int]]:
        self.looks += 1
        return [(self.waiting,)]

    async def execute(self, _statement: bytes, parameters: dict[str, bool]) -> int:
        self.asked.append(parameters["wanted"])
        touched = parameters["wanted"] != self.on
        self.on = parameters["wanted"]
        return int(touched)


class Alarm:
    """A wakeup with a hand on its clock."""

    def __init__(self, clock: Clock, *, notify_possible: bool = True) -> None:
        self.clock = clock
        self.wakeup = Wakeup(max_interval=1.0, notify_possible=notify_possible)
        self.wakeup.listening(active=notify_possible)
        self.switched = Switch()

    async def switch(self) -> bool:
        return await self.wakeup.switch(cast("Database", self.switched))

    def notifications(self, per_second: float, seconds: int = 1) -> None:
        for _ in range(seconds):
            for _ in range(int(per_second)):
                self.wakeup.heard()
            self.clock.now += 1.0

    async def busy_producers(self, per_second: float, seconds: int) -> None:
        """Turns of a worker that is notified of what it then finds."""
        for _ in range(seconds):
            self.notifications(per_second)
            self.wakeup.found(int(per_second))
            await self.switch()

    def rows(self, per_second: float, seconds: int = 2) -> None:
        for _ in range(seconds):
            self.wakeup.found(int(per_second))
            self.clock.now += 1.0
        self.wakeup.found(1)
