"""Spans as OTLP has them, made when they are over.

Not by the SDK: a sampled span and its encoding cost 120 microseconds of CPU there and 10 here,
where the whole of a message costs 25. What many spans have in common is encoded once.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, NamedTuple

from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status

from pgoutbox.telemetry.quiet import clean
from pgoutbox.telemetry.tracing.attributes import OUTBOX, Attributes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from typing import Any

    from pgoutbox.telemetry.tracing.attributes import Value
    from pgoutbox.telemetry.tracing.context import Stored

MAX_LINKS = 128
MAX_TEMPLATES = 1000
MESSAGE_ID = "messaging.message.id"

SAMPLED, HAS_IS_REMOTE, IS_REMOTE = 0x01, 0x100, 0x200
LOCAL = SAMPLED | HAS_IS_REMOTE
REMOTE = LOCAL | IS_REMOTE


class Place(NamedTuple):
    """A span that others refer to."""

    trace_id: bytes
    span_id: bytes
    tracestate: str = ""
    flags: int = LOCAL


def place_of(stored: Stored) -> Place:
    """The span of the producer."""
    return Place(*stored, REMOTE)


class Happening(NamedTuple):
    """Something at one moment of a span; ``at`` in nanoseconds since 1970."""

    name: str
    at: int
    attributes: Attributes


class Period(NamedTuple):
    """In nanoseconds since 1970."""

    start: int
    end: int


class Spans:
    """Makes them and passes them on."""

    def __init__(
        self,
        add: Callable[[Span], object],
        *,
        destinations: Mapping[str, Attributes],
        owner: str,
    ) -> None:
        """``destinations``: what publishes to each have in common."""
        self._add = add
        self._destinations = destinations
        self._owner = owner
        self._templates: dict[tuple[Value | None, ...], bytes] = {}

    def publish(
        self,
        destination: str,
        outcome: str,
        error: str,
        *,
        status: int | None,
        description: str,
    ) -> Span:
        """Of one message; the caller fills in the rest and calls `finish`."""
        key = ("publish", destination, outcome, error, status)
        template = self._templates.get(key)
        if template is None:
            attributes = self._common("publish", "send", destination)
            attributes |= self._destinations.get(destination, {})
            attributes["outbox.outcome"] = outcome
            if status is not None:
                attributes["http.response.status_code"] = status
            template = self._template(key, f"publish {destination}", attributes, error)
        span: Span = Span.FromString(template)
        if description:
            span.status.message = clean(description)
        return span

    def batch(self, operation: str, destination: str, *, error: str = "") -> Span:
        """Of a claim or of what settles one; the caller fills in the rest and calls `finish`."""
        key = (operation, destination, error)
        template = self._templates.get(key)
        if template is None:
            kind = "receive" if operation == "claim" else "settle"
            attributes: Attributes = {"messaging.system": OUTBOX}
            attributes |= self._common(operation, kind, destination)
            template = self._template(key, f"{operation} {destination}", attributes, error)
        span: Span = Span.FromString(template)
        return span

    def finish(
        self,
        span: Span,
        period: Period,
        *,
        parent: Place | None,
        links: Iterable[tuple[Place, str]] = (),
    ) -> Place:
        """Put it where it belongs, without a parent into a trace of its own, and pass it on.

        ``links``: spans, each with the id of the message that it is about, or with an empty text.
        """
        span_id = random.getrandbits(64).to_bytes(8, "big")
        span.span_id = span_id
        span.start_time_unix_nano, span.end_time_unix_nano = period
        if parent is None:
            trace_id, tracestate = random.getrandbits(128).to_bytes(16, "big"), ""
            span.flags = LOCAL
        else:
            trace_id, tracestate = parent.trace_id, parent.tracestate
            span.parent_span_id = parent.span_id
            span.trace_state = tracestate
            span.flags = parent.flags
        span.trace_id = trace_id
        for place, message_id in links:
            link = span.links.add()
            link.trace_id, link.span_id = place.trace_id, place.span_id
            link.trace_state, link.flags = place.tracestate, place.flags
            if message_id:
                field = link.attributes.add()
                field.key, field.value.string_value = MESSAGE_ID, message_id
        self._add(span)
        return Place(trace_id, span_id, tracestate)

    def _common(self, operation: str, kind: str, destination: str) -> Attributes:
        return {
            "messaging.operation.name": operation,
            "messaging.operation.type": kind,
            "messaging.destination.name": destination,
            "messaging.client.id": self._owner,
        }

    def _template(
        self, key: tuple[Value | None, ...], name: str, attributes: Attributes, error: str
    ) -> bytes:
        span = Span(name=name, kind=Span.SpanKind.SPAN_KIND_CLIENT)
        if error:
            attributes["error.type"] = error
            span.status.code = Status.StatusCode.STATUS_CODE_ERROR
        put(span.attributes, attributes)
        template: bytes = span.SerializeToString()
        if len(self._templates) < MAX_TEMPLATES:
            self._templates[key] = template
        return template


def put(fields: Any, attributes: Attributes) -> None:  # noqa: ANN401 - protobuf's own container
    """Add attributes to a span, an event or a link."""
    for name, value in attributes.items():
        field = fields.add()
        field.key = name
        if isinstance(value, str):
            field.value.string_value = value
        elif isinstance(value, int):
            field.value.int_value = value
        else:
            field.value.double_value = value


def tell(span: Span, happenings: Sequence[Happening]) -> None:
    """Add what happened meanwhile."""
    for happening in happenings:
        event = span.events.add()
        event.name, event.time_unix_nano = happening.name, happening.at
        put(event.attributes, happening.attributes)
