"""What this worker holds: claimed, and not yet known to be written."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import TYPE_CHECKING

from pgoutbox.dispatch.claim import is_suspect

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

    from pgoutbox.destinations.destination import Destination
    from pgoutbox.message import ClaimedMessage
    from pgoutbox.outcome import Outcome


class Flight:
    """One held message, alone in its publish or, for a batch publisher, with others."""

    __slots__ = (
        "abandoned",
        "companions",
        "lease_ends",
        "message",
        "settled",
        "started",
        "task",
        "verdict",
    )

    def __init__(self, message: ClaimedMessage, lease_ends: float, now: float) -> None:
        self.message = message
        self.lease_ends = lease_ends
        """On the monotonic clock, counted from before the claim or renewal was sent."""
        self.started = now
        self.task: asyncio.Task[None] | None = None
        self.companions: Sequence[Flight] = ()
        """All that share its publish while that runs, itself included."""
        self.settled = False
        self.abandoned = False
        """Somebody else's by now, or left to its lease: its outcome is not to be written."""
        self.verdict: Outcome | None = None
        """What it means when its publish is cancelled."""

    @property
    def publishing(self) -> bool:
        """Whether its outcome is still awaited."""
        return not (self.settled or self.abandoned)

    def cancel(self, verdict: Outcome) -> None:
        """Cancel the publish for all that share it. The first verdict stands."""
        for companion in self.companions:
            if companion.verdict is None:
                companion.verdict = verdict
        if self.task is not None:
            self.task.cancel()

    def abandon(self) -> None:
        """Let go of it. The publish is cancelled with the last of those that share it."""
        self.abandoned = True
        if self.task is not None and all(c.abandoned for c in self.companions):
            self.task.cancel()


class InFlight:
    """All flights, and the slots that are left."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._flights: dict[tuple[int, int], Flight] = {}
        """By lease: after a long outage this worker may reclaim what it still holds."""
        self._running: dict[asyncio.Task[None], Sequence[Flight]] = {}
        self._publishing: Counter[str] = Counter()
        self._given_up: set[asyncio.Task[None]] = set()
        self._hung: Counter[str] = Counter()
        self._suspects = 0
        self._turn = 0
        self.changed = asyncio.Event()
        """Set whenever a slot became free."""
        self.on_change: Callable[[], None] = self.changed.set
        self.on_suspect_gone: Callable[[], None] = self.changed.set

    def __len__(self) -> int:
        return len(self._flights)

    def __iter__(self) -> Iterator[Flight]:
        return iter(list(self._flights.values()))

    @property
    def ids(self) -> list[int]:
        """The row ids of all of them."""
        return [row_id for row_id, _ in self._flights]

    @property
    def publishing(self) -> int:
        """How many publishes are under way, those that were given up included."""
        return self._publishing.total()

    @property
    def awaited(self) -> list[asyncio.Task[None]]:
        """The publishes whose outcome still matters to somebody."""
        return [
            task
            for task, flights in self._running.items()
            if not all(flight.abandoned for flight in flights)
        ]

    @property
    def suspect(self) -> bool:
        """Whether one of them may be what kills workers."""
        return self._suspects > 0

    def take(
        self, messages: Sequence[ClaimedMessage], lease_ends: float, now: float
    ) -> list[Flight]:
        """Hold these messages."""
        flights = [Flight(message, lease_ends, now) for message in messages]
        for flight in flights:
            self._flights[flight.message.lease] = flight
            self._suspects += is_suspect(flight.message)
        return flights

    def depart(self, flights: Sequence[Flight], task: asyncio.Task[None]) -> None:
        """``task`` publishes these; they occupy a slot each until it has `landed`."""
        self._running[task] = flights
        self._publishing[flights[0].message.destination] += len(flights)
        for flight in flights:
            flight.task = task
            flight.companions = flights

    def landed(self, task: asyncio.Task[None]) -> Sequence[Flight]:
        """The task has ended: its destination can take others. Returns what it published."""
        flights = self._running.pop(task)
        destination = flights[0].message.destination
        self._publishing[destination] -= len(flights)
        for flight in flights:
            # A cycle each otherwise, left to the garbage collector tens of thousands of times a
            # second.
            flight.task, flight.companions = None, ()
        if task in self._given_up:
            self._given_up.remove(task)
            self._hung[destination] -= len(flights)
        self.on_change()
        return flights

    def running(self) -> list[Sequence[Flight]]:
        """What each running task publishes, those that were given up left out."""
        return [flights for task, flights in self._running.items() if task not in self._given_up]

    def give_up(self, flights: Sequence[Flight]) -> int:
        """The publish does not end: leave the rows to their lease. Its slots stay occupied.

        How many slots of the destination are occupied like that by now.
        """
        for flight in flights:
            flight.abandon()
        task, destination = flights[0].task, flights[0].message.destination
        if task is not None:
            self._given_up.add(task)
        self._hung[destination] += len(flights)
        self.release(flight.message for flight in flights)
        return self._hung[destination]

    def release(self, messages: Iterable[ClaimedMessage]) -> None:
        """These are not ours any more: written, lost, or left to their lease."""
        for message in messages:
            if self._flights.pop(message.lease, None) and is_suspect(message):
                self._suspects -= 1
                self.on_suspect_gone()
        self.on_change()

    def free(
        self,
        destinations: Mapping[str, Destination],
        now: float,
        besides: Collection[str] = (),
    ) -> dict[str, int]:
        """How many messages each destination could start now; those with none are absent.

        ``besides`` are left out: they were asked already, in vain.
        """
        left = self._limit - len(self._flights)
        # Whoever comes first gets what does not divide, so each call that has something to give
        # begins one further on. Were the others counted, a full worker, which looks in vain
        # before each slot that falls free, would favour the same destination every time.
        self._turn += left > 0
        wants = self.wants(destinations, now)
        names = list(wants)
        first = self._turn % max(len(names), 1)
        rotated = (name for name in names[first:] + names[:first] if name not in besides)
        return share(left, {name: wants[name] for name in rotated})

    def wants(self, destinations: Mapping[str, Destination], now: float) -> dict[str, int]:
        """How many messages each destination could start if the worker held none."""
        return {
            name: destination.breaker.allowance(
                destination.concurrency - self._publishing[name],
                self._publishing[name] - self._hung[name],
                now,
            )
            for name, destination in destinations.items()
            if not destination.stopped
        }


def share(total: int, wants: Mapping[str, int]) -> dict[str, int]:
    """Split ``total`` so that nobody gets more than wanted and the small ones are served first.

    Max-min fairness: whoever wants less than an equal part leaves the rest to the others. What
    does not divide goes to those that come first in ``wants``.
    """
    left = max(total, 0)
    shares: dict[str, int] = {}
    waiting = sorted((name for name, want in wants.items() if want > 0), key=wants.__getitem__)
    while waiting and wants[waiting[0]] <= left // len(waiting):
        name = waiting.pop(0)
        shares[name] = wants[name]
        left -= wants[name]
    for position, name in enumerate(name for name in wants if name in waiting):
        shares[name] = left // len(waiting) + (position < left % len(waiting))
    return {name: part for name, part in shares.items() if part}
