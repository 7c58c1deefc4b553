"""What this worker holds: claimed, and not yet known to be written."""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pgoutbox.dispatch.claim import is_suspect
from pgoutbox.dispatch.reachability import Reachability
from pgoutbox.dispatch.retry import RetryPolicy

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from pgoutbox.message import ClaimedMessage
    from pgoutbox.outcome import Outcome
    from pgoutbox.publisher import BatchPublisher, Publisher


@dataclass(slots=True, kw_only=True)
class Destination:
    """A named target with its publisher and limits. Durations in seconds."""

    name: str
    publisher: Publisher | BatchPublisher
    concurrency: int = 50
    publish_timeout: float = 10.0
    policy: RetryPolicy = field(default_factory=RetryPolicy)
    reachability: Reachability = field(default_factory=Reachability)
    stopped: bool = False


class Flight:
    """One held message, alone in its task or, for a batch publisher, with others."""

    __slots__ = (
        "abandoned",
        "lease_ends",
        "message",
        "settled",
        "shared",
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
        self.shared = False
        self.settled = False
        self.abandoned = False
        """Somebody else's by now, or left to its lease: its outcome is not to be written."""
        self.verdict: Outcome | None = None
        """What it means when its publish is cancelled."""

    def cancel(self, verdict: Outcome) -> None:
        """Cancel the publish, and with it every other in its batch. The first verdict stands."""
        if self.verdict is None:
            self.verdict = verdict
        if self.task is not None:
            self.task.cancel()

    def abandon(self) -> None:
        """Let go of it: cancel the publish, unless others share it."""
        self.abandoned = True
        if self.task is not None and not self.shared:
            self.task.cancel()


class InFlight:
    """All flights, and the slots that are left."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._flights: dict[tuple[int, int], Flight] = {}
        """By lease: after a long outage this worker may reclaim what it still holds."""
        self._publishing: Counter[str] = Counter()
        self._turn = 0
        self.changed = asyncio.Event()
        """Set whenever a slot became free."""
        self.on_change: Callable[[], None] = self.changed.set

    def __len__(self) -> int:
        return len(self._flights)

    def __iter__(self) -> Iterator[Flight]:
        return iter(list(self._flights.values()))

    @property
    def publishing(self) -> int:
        """How many publishes are under way."""
        return self._publishing.total()

    @property
    def suspect(self) -> bool:
        """Whether one of them may be what kills workers."""
        return any(is_suspect(flight.message) for flight in self._flights.values())

    def take(
        self, messages: Sequence[ClaimedMessage], lease_ends: float, now: float
    ) -> list[Flight]:
        """Hold these messages and count them as publishing."""
        flights = [Flight(message, lease_ends, now) for message in messages]
        for flight in flights:
            self._flights[flight.message.lease] = flight
            self._publishing[flight.message.destination] += 1
        return flights

    def landed(self, destination: str, count: int = 1) -> None:
        """Publishes have ended: their destination can take others."""
        self._publishing[destination] -= count
        self.on_change()

    def release(self, messages: Iterable[ClaimedMessage]) -> None:
        """These are not ours any more: written, lost, or left to their lease."""
        for message in messages:
            self._flights.pop(message.lease, None)
        self.on_change()

    def free(self, destinations: Mapping[str, Destination], now: float) -> dict[str, int]:
        """How many messages each destination could start now; those with none are absent."""
        left = self._limit - len(self._flights)
        # Whoever comes first gets what does not divide, so each call that has something to give
        # begins one further on. Were the others counted, a full worker, which looks in vain
        # before each slot that falls free, would favour the same destination every time.
        self._turn += left > 0
        names = list(destinations)
        first = self._turn % len(names)
        wants = {
            name: destinations[name].reachability.allowance(
                destinations[name].concurrency - self._publishing[name],
                self._publishing[name],
                now,
            )
            for name in names[first:] + names[:first]
            if not destinations[name].stopped
        }
        return share(left, wants)


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
