"""The table: what is due, what is scheduled, and what of it a worker can take."""

from __future__ import annotations

from collections import deque
from heapq import heappop, heappush
from typing import TYPE_CHECKING

from simulation.messages import Lane

if TYPE_CHECKING:
    from simulation.messages import Message


class Outbox:
    """Of a lane only the first message is ever in a queue."""

    def __init__(self, destinations: int) -> None:
        self.queues: list[deque[Message]] = [deque() for _ in range(destinations)]
        self.lanes: dict[int, Lane] = {}
        self.undelivered = 0
        self.processing = 0
        self.scheduled = 0
        self._behind = 0
        """In lanes, with another of the lane before it."""
        self._dues: list[float] = []

    def lane(self, number: int | None) -> Lane | None:
        """The lane with this key."""
        return None if number is None else self.lanes.setdefault(number, Lane())

    def put(self, message: Message) -> None:
        """It is new and due."""
        self.undelivered += 1
        lane = message.lane
        if lane is None:
            self.queues[message.destination].append(message)
        elif lane.taken:
            lane.behind.append(message)
            self._behind += 1
        else:
            lane.taken = True
            self.queues[message.destination].append(message)

    def put_off(self, message: Message) -> None:
        """It is to be tried again at ``message.due``."""
        self.scheduled += 1
        heappush(self._dues, message.due)

    def due(self, message: Message) -> None:
        """What was put off is due."""
        self.scheduled -= 1
        self.queues[message.destination].append(message)

    def finished(self, message: Message) -> None:
        """Delivered, or given up; the next of its lane can be taken."""
        self.undelivered -= 1
        lane = message.lane
        if lane is None:
            return
        if lane.behind:
            self._behind -= 1
            self.queues[message.destination].append(lane.behind.popleft())
        else:
            lane.taken = False

    def ready(self, leave_out: set[int]) -> int:
        """Claimable, or behind such in its lane; without those destinations."""
        found = 0
        for number, queue in enumerate(self.queues):
            if number not in leave_out:
                found += len(queue)
                if self._behind:
                    found += sum(len(m.lane.behind) for m in queue if m.lane is not None)
        return found

    def pending(self) -> int:
        """``count(*) WHERE status = 'pending'``."""
        return self.undelivered - self.processing

    def oldest_ready_age(self, now: float, leave_out: set[int]) -> float:
        """Since when the first of these is due."""
        heads = [
            queue[0].due
            for number, queue in enumerate(self.queues)
            if queue and number not in leave_out
        ]
        return max(0.0, now - min(heads)) if heads else 0.0

    def next_due_in(self, now: float) -> float | None:
        """Until the first that was put off is due."""
        while self._dues and self._dues[0] <= now:
            heappop(self._dues)
        return self._dues[0] - now if self._dues else None

    def parallel(self) -> int:
        """How many could be published at the same time."""
        return sum(map(len, self.queues)) + self.processing
