"""What this worker holds: claimed, and not yet known to be written."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import TYPE_CHECKING

from pgoutbox.dispatch.claim import is_suspect
from pgoutbox.dispatch.share import share
from pgoutbox.dispatch.usage import Usage

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

    from pgoutbox.destinations.destination import Destination
    from pgoutbox.dispatch.runs import Run
    from pgoutbox.message import ClaimedMessage
    from pgoutbox.outcome import Outcome


class Flight:
    """One held message, alone in its publish or, for a batch publisher, with others."""

    __slots__ = (
        "abandoned",
        "begun",
        "companions",
        "finished",
        "lease_ends",
        "message",
        "run",
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
        """When its publish began; before that, when it was claimed."""
        self.task: asyncio.Task[None] | None = None
        self.begun = False
        """Whether its publish has ever been started."""
        self.run: Run | None = None
        """Those behind it in its lane, where it has an ordering key."""
        self.companions: Sequence[Flight] = ()
        """All that share its publish while that runs, itself included."""
        self.settled = False
        self.finished = False
        """The destination has it, so that the next one of its lane may follow."""
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
        self.usage = Usage(limit)
        self._flights: dict[tuple[int, int], Flight] = {}
        """By lease: after a long outage this worker may reclaim what it still holds."""
        self._running: dict[asyncio.Task[None], Sequence[Flight]] = {}
        self._publishing: Counter[str] = Counter()
        self._publishing_ordered: Counter[str] = Counter()
        self._held: Counter[tuple[str, str]] = Counter()
        """How many messages of each lane."""
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

    def publishing_to(self, destination: str) -> int:
        """How many messages are on their way to one destination."""
        return self._publishing[destination]

    def ending_at(self, destination: str) -> int:
        """As `publishing_to`, without those that were given up: nobody knows if they ever end."""
        return self._publishing[destination] - self._hung[destination]

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
            message = flight.message
            self._flights[message.lease] = flight
            if message.ordering_key is not None:
                self._held[message.destination, message.ordering_key] += 1
            self._suspects += is_suspect(flight.message)
        return flights

    def depart(self, flights: Sequence[Flight], task: asyncio.Task[None]) -> None:
        """``task`` publishes these; they occupy a slot each until it has `landed`."""
        self._running[task] = flights
        destination = flights[0].message.destination
        self._publishing[destination] += len(flights)
        self.usage.begun(destination, len(flights))
        for flight in flights:
            flight.begun = True
            if flight.run is not None:
                self._publishing_ordered[destination] += 1
            flight.task = task
            flight.companions = flights

    def landed(self, task: asyncio.Task[None]) -> Sequence[Flight]:
        """The task has ended: its destination can take others, once `on_change` is called.

        Returns what it published.
        """
        flights = self._running.pop(task)
        destination = flights[0].message.destination
        self._publishing[destination] -= len(flights)
        self.usage.ended(destination, len(flights))
        for flight in flights:
            if flight.run is not None:
                self._publishing_ordered[destination] -= 1
            # A cycle each otherwise, left to the garbage collector tens of thousands of times a
            # second.
            flight.task, flight.companions = None, ()
        if task in self._given_up:
            self._given_up.remove(task)
            self._hung[destination] -= len(flights)
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
        begun = 0
        for message in messages:
            flight = self._flights.pop(message.lease, None)
            if flight is None:
                continue
            begun += flight.begun
            if message.ordering_key is not None:
                self._let_go((message.destination, message.ordering_key))
            if is_suspect(message):
                self._suspects -= 1
                self.on_suspect_gone()
        self.usage.let_go(begun)
        self.on_change()

    def _let_go(self, lane: tuple[str, str]) -> None:
        self._held[lane] -= 1
        if not self._held[lane]:
            del self._held[lane]

    def lanes(self, destination: str) -> set[str]:
        """The ordering keys of which this worker holds something."""
        return {key for name, key in self._held if name == destination}

    def runs(self) -> list[Run]:
        """All runs of which something is held."""
        return _distinct(self._flights.values())

    def runs_of(self, messages: Iterable[ClaimedMessage]) -> list[Run]:
        """The runs that these belong to."""
        found = (self._flights.get(message.lease) for message in messages)
        return _distinct(flight for flight in found if flight is not None)

    def ordered(self, destination: str) -> int:
        """Slots of the destination that publish an ordered message."""
        return self._publishing_ordered[destination]

    def unordered(self, destination: str) -> int:
        """Slots of the destination that publish any other."""
        return self._publishing[destination] - self._publishing_ordered[destination]

    def spare(self, destinations: Mapping[str, Destination]) -> int:
        """How many more messages could be held if every destination made use of all its slots."""
        needed = sum(
            max(destination.concurrency - self._publishing[name], 0)
            for name, destination in destinations.items()
            if not destination.stopped
        )
        return max(self._limit - len(self._flights) - needed, 0)

    def free(self, wants: Mapping[str, int], besides: Collection[str] = ()) -> dict[str, int]:
        """How many messages each destination could start now; those with none are absent.

        ``wants`` as from `wants`. ``besides`` are left out: they were asked already, in vain.
        """
        left = self._limit - len(self._flights)
        # Whoever comes first gets what does not divide, so each call that has something to give
        # begins one further on. Were the others counted, a full worker, which looks in vain
        # before each slot that falls free, would favour the same destination every time.
        self._turn += left > 0
        names = list(wants)
        first = self._turn % max(len(names), 1)
        rotated = (name for name in names[first:] + names[:first] if name not in besides)
        return share(left, {name: wants[name] for name in rotated})

    def wants(self, destinations: Mapping[str, Destination], now: float) -> dict[str, int]:
        """How many messages each destination could start if the worker held none."""
        return {
            name: destination.allowance(self._publishing[name], self._hung[name], now)
            for name, destination in destinations.items()
            if not destination.stopped
        }


def _distinct(flights: Iterable[Flight]) -> list[Run]:
    return list({id(flight.run): flight.run for flight in flights if flight.run}.values())
