"""The numbers behind the metrics, kept on the event loop and therefore without locks.

`prometheus_client`'s own histogram takes a lock and walks its buckets for every observation,
2 to 3 microseconds; a worker has about 30 for the whole message.
"""

from __future__ import annotations

import time
from bisect import bisect_left, bisect_right
from collections import Counter
from itertools import accumulate
from operator import itemgetter
from typing import TYPE_CHECKING

from prometheus_client.samples import Exemplar

from pgoutbox.outcome import (
    Bury,
    Deferred,
    Interrupted,
    PermanentFailure,
    Published,
    Release,
    RetryableFailure,
    Unavailable,
    Unstarted,
)
from pgoutbox.telemetry.tracing import context

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from pgoutbox.events import Claimed, Finalized, Settled
    from pgoutbox.message import ClaimedMessage
    from pgoutbox.outcome import Outcome

MAX_DESTINATIONS = 50
"""Label values that one worker exports; further destinations share one."""
OTHER = "_other"

PUBLISH_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
SUBMINUTE = (0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
DELIVERY_SECONDS = (*SUBMINUTE, 60.0, 120.0, 300.0, 900.0, 3600.0)
STATEMENT_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0)
DRAIN_SECONDS = (0.1, 0.5, 1.0, 2.5, 5.0, 10.0, 15.0, 20.0, 25.0, 30.0, 60.0)

# An `Unstarted` message is no attempt.
OUTCOMES: dict[type[Outcome], str] = {
    Published: "ok",
    RetryableFailure: "retryable",
    PermanentFailure: "permanent",
    Deferred: "deferred",
    Unavailable: "unavailable",
    Interrupted: "cancelled",
}
EXPIRED = "lease_expired"
OUT_OF_ATTEMPTS = "max_attempts"
DEATHS: dict[type[Outcome], str] = {
    PermanentFailure: "permanent",
    Deferred: "defer_max_age",
    RetryableFailure: OUT_OF_ATTEMPTS,
    Unavailable: OUT_OF_ATTEMPTS,
}
DEATH_REASONS = ("permanent", OUT_OF_ATTEMPTS, "defer_max_age", EXPIRED)
RELEASE_REASONS = ("drain", "unavailable", "unstarted")


class Distribution:
    """A histogram."""

    __slots__ = ("_bounds", "_counts", "_exemplars", "total")

    def __init__(self, bounds: Sequence[float]) -> None:
        self._bounds = tuple(bounds)
        self._counts = [0] * (len(bounds) + 1)
        self._exemplars: dict[int, Exemplar] = {}
        self.total = 0.0

    def add(self, values: Sequence[float]) -> None:
        """Count each of ``values`` in the first bucket whose bound is not below it."""
        # Sorted once, a batch costs one search for each bound instead of one for each value.
        ordered = sorted(values)
        below = 0
        for index, bound in enumerate(self._bounds):
            if below == len(ordered):
                break
            upto = bisect_right(ordered, bound, below)
            self._counts[index] += upto - below
            below = upto
        self._counts[-1] += len(ordered) - below
        self.total += sum(ordered)

    def show(self, traced: Iterable[tuple[float, ClaimedMessage]]) -> None:
        """Let the greatest of these values, which were added, be the example of its bucket."""
        value, message = max(traced, key=itemgetter(0), default=(0.0, None))
        if message is not None and (found := context.stored(message)):
            ids = {"trace_id": found.trace_id.hex(), "span_id": found.span_id.hex()}
            self._exemplars[bisect_left(self._bounds, value)] = Exemplar(ids, value, time.time())

    def buckets(self) -> list[tuple[str, float] | tuple[str, float, Exemplar]]:
        """Bounds and cumulated counts, the infinite one last; some with an example."""
        names = [*map(str, self._bounds), "+Inf"]
        counted = zip(names, accumulate(self._counts), strict=True)
        return [
            (*each, self._exemplars[index]) if index in self._exemplars else each
            for index, each in enumerate(counted)
        ]


class DestinationTally:
    """What this worker did for one destination."""

    __slots__ = (
        "attempts",
        "claimed",
        "crashes",
        "dead",
        "latency",
        "open",
        "published",
        "refused",
        "seconds",
    )

    def __init__(self) -> None:
        self.claimed = 0
        self.published = 0
        self.crashes = 0
        self.refused = 0
        self.open: set[str] = set()
        """Breakers that are open; destinations may share a label."""
        self.attempts: dict[type[Outcome], int] = dict.fromkeys([*OUTCOMES, Unstarted], 0)
        self.dead = dict.fromkeys(DEATH_REASONS, 0)
        self.seconds = Distribution(PUBLISH_SECONDS)
        self.latency = Distribution(DELIVERY_SECONDS)


class WorkerTally:
    """What this worker did in all."""

    def __init__(self, destinations: Sequence[str], *, slots: int) -> None:
        """``slots``: how many messages are held at once."""
        self.destinations: dict[str, DestinationTally] = {}
        for name in destinations:
            self.of(name)
        self.leases_lost = 0
        self.leases_reclaimed = 0
        self.released = dict.fromkeys(RELEASE_REASONS, 0)
        self.draining = False
        # By row id. A lane's later messages wait between their claim and their publish.
        self._claimed_at: dict[int, float] = {}
        self._limit = 2 * slots

    def of(self, destination: str) -> DestinationTally:
        """The tally of one destination; from the fifty-first on, one for all the others."""
        tally = self.destinations.get(destination)
        if tally is None:
            name = destination if len(self.destinations) < MAX_DESTINATIONS else OTHER
            tally = self.destinations.setdefault(name, DestinationTally())
        return tally

    def claimed(self, event: Claimed, *, now: float) -> None:
        """One claim, answered at ``now``."""
        self._claimed_at.update(dict.fromkeys([each.id for each in event.messages], now))
        # Of a batch that hangs, no event tells the end.
        while len(self._claimed_at) > self._limit:
            del self._claimed_at[next(iter(self._claimed_at))]
        self.leases_reclaimed += event.reclaimed
        for name, count in Counter([each.destination for each in event.messages]).items():
            self.of(name).claimed += count

    def finalized(self, event: Finalized) -> None:
        """One batch whose transitions were written, or were not."""
        self.leases_lost += len(event.lost)
        for recorded in (event.written, event.already_written, event.unknown):
            for name, batch in _by_destination(recorded):
                tally = self.of(name)
                traced = _sampled(batch)
                _add_publishes(tally, batch, traced)
                self._add_recorded(tally, batch, traced)
        refused = [settled for settled, _ in event.refused]
        for settled in refused:
            self.of(settled.message.destination).refused += 1
        for unrecorded in (event.lost, refused):
            for name, batch in _by_destination(unrecorded):
                _add_publishes(self.of(name), batch, _sampled(batch))
                self._forget(each.message for each in batch)

    def breaker(self, destination: str, *, is_open: bool) -> None:
        """It opened, or closed again."""
        opened = self.of(destination).open
        if is_open:
            opened.add(destination)
        else:
            opened.discard(destination)

    def cancelled(self, messages: Sequence[ClaimedMessage]) -> None:
        """Publishes that were given up because their lease is not ours any more."""
        for message in messages:
            self.of(message.destination).attempts[Interrupted] += 1
        self._forget(messages)

    def crashed(self, message: ClaimedMessage) -> None:
        """A publisher raised something unclassified."""
        self.of(message.destination).crashes += 1
        self._forget([message])

    def _add_recorded(
        self, tally: DestinationTally, batch: Sequence[Settled], traced: Sequence[Settled]
    ) -> None:
        latency: list[float] = []
        if traced:
            tally.latency.show(self._latencies(traced))
        claimed_at = self._claimed_at.pop
        for message, outcome, transition, started, seconds in batch:
            claimed = claimed_at(message.id, started)
            if type(outcome) is Published:
                latency.append(message.age + started + seconds - claimed)
            elif type(transition) is Bury:
                tally.dead[DEATHS.get(type(outcome), OUT_OF_ATTEMPTS)] += 1
            elif type(transition) is Release:
                self.released[self._why_released(outcome)] += 1
        tally.published += len(latency)
        tally.latency.add(latency)

    def _latencies(self, traced: Iterable[Settled]) -> Iterator[tuple[float, ClaimedMessage]]:
        """Of messages whose claims are not forgotten yet."""
        for message, outcome, _, started, seconds in traced:
            if type(outcome) is Published:
                waited = started - self._claimed_at.get(message.id, started)
                yield message.age + waited + seconds, message

    def _why_released(self, outcome: Outcome) -> str:
        if self.draining:
            return "drain"
        return "unstarted" if isinstance(outcome, Unstarted) else "unavailable"

    def _forget(self, messages: Iterable[ClaimedMessage]) -> None:
        for message in messages:
            self._claimed_at.pop(message.id, None)


def _add_publishes(
    tally: DestinationTally, batch: Sequence[Settled], traced: Sequence[Settled]
) -> None:
    kinds = Counter([type(settled.outcome) for settled in batch])
    for kind, count in kinds.items():
        tally.attempts[kind] += count
    if Unstarted in kinds:
        batch = [settled for settled in batch if type(settled.outcome) is not Unstarted]
    tally.seconds.add([settled.seconds for settled in batch])
    if traced:
        tally.seconds.show(
            (settled.seconds, settled.message)
            for settled in traced
            if type(settled.outcome) is not Unstarted
        )


def _sampled(batch: Sequence[Settled]) -> Sequence[Settled]:
    if found := context.sampled([settled.message for settled in batch]):
        ids = {message.id for message in found}
        return [settled for settled in batch if settled.message.id in ids]
    return ()


def _by_destination(batch: Sequence[Settled]) -> Iterable[tuple[str, Sequence[Settled]]]:
    groups: dict[str, list[Settled]] = {}
    for settled in batch:
        name = settled.message.destination
        if name in groups:
            groups[name].append(settled)
        else:
            groups[name] = [settled]
    return groups.items()
