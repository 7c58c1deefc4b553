"""Events into spans, for messages whose producer's trace is sampled.

Spans are made when what they tell about is over, from the times in the events. So no context is
attached to a task, and none can leak into another one.

A claim, and what settles a batch, has a span where one of the batch's messages is traced. It joins
that trace while there is only one; else it begins a trace of its own, which is always kept: a
publish never refers to a claim that is not there.
"""

from __future__ import annotations

import time
from collections import Counter
from itertools import zip_longest
from operator import attrgetter
from typing import TYPE_CHECKING, Literal

from pgoutbox import events
from pgoutbox.outcome import Published, Unstarted
from pgoutbox.telemetry.quiet import clean
from pgoutbox.telemetry.tally import OUTCOMES
from pgoutbox.telemetry.tracing import context, wire
from pgoutbox.telemetry.tracing.attributes import (
    SETTLING,
    error_of,
    label_of,
    sqlstate_of,
    status_of,
)
from pgoutbox.telemetry.tracing.held import (
    MAX_HAPPENINGS,
    Held,
    conversation_of,
    links_of,
    of_batch,
    one_claim,
    one_trace,
)
from pgoutbox.telemetry.tracing.spans import Period, Place, Spans

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from pgoutbox.events import Event, Settled
    from pgoutbox.message import ClaimedMessage
    from pgoutbox.telemetry.tracing.context import Stored

Parent = Literal["creation", "batch"]
NANOS = 1_000_000_000
OK = OUTCOMES[Published]

PATIENCE = 30.0
"""Seconds after which a bug of a publisher is told whose message was not settled by then."""

# In C: asked for every message of a batch in which one is traced.
_LEASE = attrgetter("message.id", "message.lease_version")
_DESTINATION = attrgetter("destination")
_ITS_DESTINATION = attrgetter("message.destination")
_TRANSITION = attrgetter("transition")


class Tracing:
    """Observer of events."""

    def __init__(
        self,
        spans: Spans,
        *,
        slots: int,
        parent: Parent = "creation",
        decide: Callable[[Stored], bool] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """``slots``: how many messages a worker holds at once.

        ``decide``: asked about each stored context; without it the sampled flag decides.
        """
        self._spans = spans
        self._batch = parent == "batch"
        self._decide = decide
        self._clock = clock
        self._limit = 2 * slots
        self._held: dict[tuple[int, int], Held] = {}
        """By lease, the oldest first: a worker may take over what it still holds itself."""
        self._failed: dict[tuple[int, int], Held] = {}
        """Those of them whose publisher has failed; their end may not be told by any event."""

    def on_event(self, event: Event) -> None:  # noqa: C901 - one case per event
        """Make the spans that are over now."""
        match event:
            case events.Claimed():
                self._claimed(event)
            case _ if not self._held:
                pass
            case events.Finalized():
                self._finalized(event)
            case events.Renewed():
                self._lose_patience(PATIENCE)
                self._tell(event.messages, "lease renewed")
            case events.LeaseUnconfirmed():
                self._tell(event.messages, "lease unconfirmed")
            case events.LeaseLost():
                self._lost(event)
            case events.PublisherFailed():
                self._failing(event)
            case events.DrainEnded():
                self._lose_patience(0.0)
            case _:
                pass

    def _claimed(self, event: events.Claimed) -> None:
        self._lose_patience(PATIENCE)
        traced = self._traced(event.messages)
        if not traced:
            return
        now = time.time_ns()
        period = Period(now - int(event.seconds * NANOS), now)
        counts = Counter(map(_DESTINATION, event.messages))
        batches: dict[str, list[Held]] = {}
        for message, stored in traced:
            one = Held(message, stored, now)
            self._held[message.lease] = one
            batches.setdefault(message.destination, []).append(one)
        for destination, batch in batches.items():
            place = self._claim(destination, batch, counts[destination], period)
            to_claim = place.link()
            for one in batch:
                one.claim = place
                if self._batch:
                    one.parent, one.other = place, one.creation.link()
                else:
                    one.other = to_claim
        self._forget()

    def _traced(self, messages: Sequence[ClaimedMessage]) -> list[tuple[ClaimedMessage, Stored]]:
        decide = self._decide
        candidates = context.sampled(messages) if decide is None else context.carrying(messages)
        return [
            (message, stored)
            for message in candidates
            if (stored := context.stored(message)) is not None
            and (decide is None or decide(stored))
        ]

    def _claim(self, destination: str, batch: Sequence[Held], count: int, period: Period) -> Place:
        pieces = [self._spans.batch("claim", destination), of_batch(batch, count)]
        reclaimed = []
        for one in batch:
            if reclaims := one.message.reclaims:
                one.add("lease reclaimed", period.end, {"outbox.reclaims": reclaims})
                reclaimed.append(one.tell("lease reclaimed", period.end, outbox_reclaims=reclaims))
        pieces += wire.events(reclaimed, MAX_HAPPENINGS)
        parent = None if self._batch else one_trace(batch)
        return self._spans.finish([*pieces, *links_of(batch, parent)], period, parent)

    def _finalized(self, event: events.Finalized) -> None:
        offset = time.time_ns() - time.monotonic_ns()
        end = time.monotonic_ns() + offset
        period = Period(end - int(event.seconds * NANOS), end)
        self._settled(event.written, "", period, offset)
        self._settled(event.already_written, "", period, offset)
        self._settled(event.unknown, "row_gone", period, offset)
        self._settled(event.lost, "lease_lost", period, offset)
        refused: dict[str, list[Settled]] = {}
        for settled, error in event.refused:
            refused.setdefault(sqlstate_of(error), []).append(settled)
        for sqlstate, batch in refused.items():
            self._settled(batch, sqlstate, period, offset)

    def _settled(self, batch: Sequence[Settled], error: str, period: Period, offset: int) -> None:
        held = self._held
        groups: dict[tuple[str, str], list[Held]] = {}
        for settled in [each for each in batch if _LEASE(each) in held]:
            one = held[settled.message.lease]
            self._drop(one)
            if type(settled.outcome) is not Unstarted:
                self._published(one, settled, offset)
            group = (settled.message.destination, SETTLING[type(settled.transition)])
            groups.setdefault(group, []).append(one)
        if not groups:
            return
        counts: Counter[tuple[str, str]] = Counter()
        ends = zip(map(_ITS_DESTINATION, batch), map(type, map(_TRANSITION, batch)), strict=True)
        for (destination, transition), count in Counter(ends).items():
            counts[destination, SETTLING[transition]] += count
        for (destination, operation), some in groups.items():
            pieces = [
                self._spans.batch(operation, destination, error),
                of_batch(some, counts[destination, operation]),
            ]
            if error == "lease_lost":
                lost = [one.tell("lease lost", period.end) for one in some]
                pieces += wire.events(lost, MAX_HAPPENINGS)
            parent = one_claim(some) if self._batch else one_trace(some)
            self._spans.finish([*pieces, *links_of(some, parent)], period, parent)

    def _published(self, one: Held, settled: Settled, offset: int) -> None:
        start = int(settled.started * NANOS) + offset
        period = Period(start, start + int(settled.seconds * NANOS))
        outcome = settled.outcome
        if type(outcome) is Published:
            self._publish(one, period, OK, "")
            return
        error = one.failure[0] if one.failure else error_of(outcome)
        words = getattr(outcome, "error", "") if error else ""
        status = status_of(outcome) if error else None
        self._publish(one, period, label_of(outcome), error, status=status, description=words)

    def _publish(
        self,
        one: Held,
        period: Period,
        outcome: str,
        error: str,
        *,
        status: int | None = None,
        description: str = "",
    ) -> None:
        message = one.message
        pieces = [
            self._spans.publish(message.destination, outcome, error, status),
            wire.message_id(one.message_id),
            wire.number("outbox.attempt", message.attempts),
            wire.number("outbox.lease.token", message.lease_version),
            wire.age(message.age),
            one.other,
            *wire.events(one.happened, MAX_HAPPENINGS, one.untold),
        ]
        if description:
            pieces.append(wire.error(clean(description)))
        if conversation := conversation_of(message):
            pieces.append(wire.attributes_of({"messaging.message.conversation_id": conversation}))
        self._spans.finish(pieces, period, one.parent)

    def _tell(self, messages: Iterable[ClaimedMessage], name: str) -> None:
        now = time.time_ns()
        for message in messages:
            if (one := self._held.get(message.lease)) is not None:
                one.add(name, now)

    def _lost(self, event: events.LeaseLost) -> None:
        """Their publishes are cancelled, and no other event tells how they ended."""
        now = time.time_ns()
        offset = now - time.monotonic_ns()
        for message, started in zip_longest(event.messages, event.started):
            one = self._held.get(message.lease)
            if one is None:
                continue
            self._drop(one)
            if started is not None:
                one.add("lease lost", now)
                period = Period(int(started * NANOS) + offset, now)
                self._publish(one, period, "cancelled", "lease_lost")

    def _failing(self, event: events.PublisherFailed) -> None:
        """What becomes of it is told by a finalize, or else by nobody."""
        one = self._held.get(event.message.lease)
        if one is not None:
            one.failure = (type(event.error).__name__, time.time_ns(), self._clock())
            self._failed[event.message.lease] = one

    def _lose_patience(self, seconds: float) -> None:
        """Nothing more is written about what failed so long ago: its lease expires."""
        for one in list(self._failed.values()):
            if one.failure is not None and one.failure[2] <= self._clock() - seconds:
                self._give_up(one)

    def _forget(self) -> None:
        """What is more than a worker holds was left to its lease, by a bug of a publisher."""
        while len(self._held) > self._limit:
            self._give_up(next(iter(self._held.values())))

    def _give_up(self, one: Held) -> None:
        self._drop(one)
        if one.failure is not None:
            kind, at, _ = one.failure
            self._publish(one, Period(one.since, at), "unclassified", kind)

    def _drop(self, one: Held) -> None:
        self._held.pop(one.message.lease, None)
        self._failed.pop(one.message.lease, None)
