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
from typing import TYPE_CHECKING, Literal

from pgoutbox import events
from pgoutbox.outcome import Unstarted
from pgoutbox.telemetry.tracing import context
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
    loss_of,
    of_batch,
    one_claim,
    one_trace,
)
from pgoutbox.telemetry.tracing.spans import (
    MESSAGE_ID,
    Happening,
    Period,
    Place,
    Spans,
    place_of,
    put,
    tell,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from pgoutbox.events import Event, Settled
    from pgoutbox.message import ClaimedMessage
    from pgoutbox.telemetry.tracing.attributes import Attributes
    from pgoutbox.telemetry.tracing.context import Stored

Parent = Literal["creation", "batch"]
NANOS = 1_000_000_000


class Tracing:
    """Observer of events."""

    def __init__(
        self,
        spans: Spans,
        *,
        parent: Parent = "creation",
        decide: Callable[[Stored], bool] | None = None,
    ) -> None:
        """``decide``: asked about each stored context; without it the sampled flag decides."""
        self._spans = spans
        self._batch = parent == "batch"
        self._decide = decide
        self._held: dict[int, Held] = {}
        """By row id."""

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
                self._tell(event.messages, "lease renewed")
            case events.LeaseUnconfirmed():
                self._tell(event.messages, "lease unconfirmed")
            case events.LeaseLost():
                self._lost(event)
            case events.PublisherFailed():
                self._failed(event)
            case events.DrainEnded():
                self._ended()
            case _:
                pass

    def _claimed(self, event: events.Claimed) -> None:
        traced = self._traced(event.messages)
        if not traced:
            return
        now = time.time_ns()
        period = Period(now - int(event.seconds * NANOS), now)
        counts = Counter([message.destination for message in event.messages])
        batches: dict[str, list[Held]] = {}
        for message, stored in traced:
            one = Held(message, place_of(stored), now)
            self._held[message.id] = one
            batches.setdefault(message.destination, []).append(one)
        for destination, batch in batches.items():
            place = self._claim(destination, batch, counts[destination], period)
            for one in batch:
                one.claim = place

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
        span = self._spans.batch("claim", destination)
        put(span.attributes, of_batch(batch, count))
        for one in batch:
            if reclaims := one.message.reclaims:
                one.add("lease reclaimed", period.end, {"outbox.reclaims": reclaims})
                again: Attributes = {MESSAGE_ID: one.message_id, "outbox.reclaims": reclaims}
                tell(span, [Happening("lease reclaimed", period.end, again)])
        parent = None if self._batch else one_trace(batch)
        return self._spans.finish(span, period, parent=parent, links=links_of(batch, parent))

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
        for settled in [each for each in batch if each[0][0] in held]:
            one = self._take(settled.message)
            if one is None:
                continue
            if type(settled.outcome) is not Unstarted:
                self._published(one, settled, offset)
            group = (settled.message.destination, SETTLING[type(settled.transition)])
            groups.setdefault(group, []).append(one)
        if not groups:
            return
        counts = Counter([(each[0].destination, SETTLING[type(each[2])]) for each in batch])
        for (destination, operation), some in groups.items():
            span = self._spans.batch(operation, destination, error=error)
            put(span.attributes, of_batch(some, counts[destination, operation]))
            if error == "lease_lost":
                tell(span, [loss_of(one, period.end) for one in some[:MAX_HAPPENINGS]])
            parent = one_claim(some) if self._batch else one_trace(some)
            self._spans.finish(span, period, parent=parent, links=links_of(some, parent))

    def _published(self, one: Held, settled: Settled, offset: int) -> None:
        start = int(settled.started * NANOS) + offset
        outcome = settled.outcome
        error = one.failure[0] if one.failure else error_of(outcome)
        self._publish(
            one,
            Period(start, start + int(settled.seconds * NANOS)),
            outcome=label_of(outcome),
            error=error,
            status=status_of(outcome) if error else None,
            description=getattr(outcome, "error", "") if error else "",
        )

    def _publish(
        self,
        one: Held,
        period: Period,
        *,
        outcome: str,
        error: str,
        status: int | None = None,
        description: str = "",
    ) -> None:
        message = one.message
        span = self._spans.publish(
            message.destination, outcome, error, status=status, description=description
        )
        put(
            span.attributes,
            {
                MESSAGE_ID: one.message_id,
                "outbox.attempt": message.attempts,
                "outbox.lease.token": message.lease_version,
                "outbox.age_seconds": message.age,
            },
        )
        if conversation := conversation_of(message):
            put(span.attributes, {"messaging.message.conversation_id": conversation})
        if one.happened:
            tell(span, one.happened)
        parent, other = one.creation, one.claim
        if self._batch and other is not None:
            parent, other = other, parent
        links = [] if other is None else [(other, "")]
        self._spans.finish(span, period, parent=parent, links=links)

    def _tell(self, messages: Iterable[ClaimedMessage], name: str) -> None:
        now = time.time_ns()
        for message in messages:
            one = self._held.get(message.id)
            if one is not None and one.message.lease == message.lease:
                one.add(name, now)

    def _lost(self, event: events.LeaseLost) -> None:
        """Their publishes are cancelled, and no other event tells how they ended."""
        now = time.time_ns()
        offset = now - time.monotonic_ns()
        for message, started in zip_longest(event.messages, event.started):
            one = self._take(message)
            if one is not None and started is not None:
                one.add("lease lost", now)
                period = Period(int(started * NANOS) + offset, now)
                self._publish(one, period, outcome="cancelled", error="lease_lost")

    def _failed(self, event: events.PublisherFailed) -> None:
        one = self._held.get(event.message.id)
        if one is not None and one.message.lease == event.message.lease:
            one.failure = (type(event.error).__name__, time.time_ns())

    def _ended(self) -> None:
        """Nothing more is written: what a bug ended stays as it is, until its lease expires."""
        failed = [one for one in self._held.values() if one.failure is not None]
        for one in failed:
            del self._held[one.message.id]
            kind, at = one.failure or ("", one.since)
            self._publish(one, Period(one.since, at), outcome="unclassified", error=kind)

    def _take(self, message: ClaimedMessage) -> Held | None:
        """No longer held; None where it is not, or by another lease than this one."""
        one = self._held.get(message.id)
        if one is None or one.message.lease_version != message.lease_version:
            return None
        return self._held.pop(message.id)
