"""Spans as OTLP has them, made when they are over.

Not by the SDK: a sampled span and its encoding cost 100 to 130 microseconds of CPU there, and all
spans of a message 14 to 20 here, where the whole of a message costs 25. What many spans have in
common is encoded once.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, NamedTuple

from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status

from pgoutbox.telemetry.tracing import wire
from pgoutbox.telemetry.tracing.attributes import OUTBOX, Attributes
from pgoutbox.telemetry.tracing.context import SAMPLED

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from pgoutbox.telemetry.tracing.attributes import Value

MAX_TEMPLATES = 1000

HAS_IS_REMOTE, IS_REMOTE = 0x100, 0x200
LOCAL = SAMPLED | HAS_IS_REMOTE
REMOTE = HAS_IS_REMOTE | IS_REMOTE
"""Beside the flags that were stored."""


class Place(NamedTuple):
    """A span that others refer to."""

    trace_id: bytes
    span_id: bytes
    tracestate: str = ""
    flags: int = LOCAL

    def link(self, about: bytes = b"") -> bytes:
        """A link to it, encoded; ``about`` is the id of a message."""
        return wire.link(self.trace_id, self.span_id, self.flags, about, self.tracestate)


class Period(NamedTuple):
    """In nanoseconds since 1970."""

    start: int
    end: int


class Spans:
    """Makes them and passes them on, encoded."""

    def __init__(
        self,
        add: Callable[[bytes], object],
        *,
        destinations: Mapping[str, Attributes],
        owner: str,
    ) -> None:
        """``destinations``: what publishes to each have in common."""
        self._add = add
        self._destinations = destinations
        self._owner = owner
        self._templates: dict[tuple[Value | None, ...], bytes] = {}

    def publish(self, destination: str, outcome: str, error: str, status: int | None) -> bytes:
        """What all publishes like this one have in common."""
        key = ("publish", destination, outcome, error, status)
        template = self._templates.get(key)
        if template is None:
            attributes = self._common("publish", "send", destination)
            attributes |= self._destinations.get(destination, {})
            attributes["outbox.outcome"] = outcome
            if status is not None:
                attributes["http.response.status_code"] = status
            template = self._template(key, f"publish {destination}", attributes, error)
        return template

    def batch(self, operation: str, destination: str, error: str = "") -> bytes:
        """What all claims have in common, or all that settles one like that."""
        key = (operation, destination, error)
        template = self._templates.get(key)
        if template is None:
            kind = "receive" if operation == "claim" else "settle"
            attributes: Attributes = {"messaging.system": OUTBOX}
            attributes |= self._common(operation, kind, destination)
            template = self._template(key, f"{operation} {destination}", attributes, error)
        return template

    def finish(self, pieces: Iterable[bytes], period: Period, parent: Place | None) -> Place:
        """Join them, put the span below its parent or into a trace of its own, and pass it on."""
        span_id = random.getrandbits(64).to_bytes(8, "big")
        if parent is None:
            made = Place(random.getrandbits(128).to_bytes(16, "big"), span_id)
            above, flags = b"", LOCAL
        else:
            made = Place(parent.trace_id, span_id, parent.tracestate)
            above, flags = parent.span_id, parent.flags | SAMPLED
        self._add(
            b"".join(
                (
                    *pieces,
                    wire.place(made.trace_id, span_id, above),
                    wire.period(*period),
                    wire.flags(flags),
                    wire.tracestate(made.tracestate),
                )
            )
        )
        return made

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
        span.attributes.extend(wire.key_values(attributes))
        template = wire.encoded(span)
        if len(self._templates) < MAX_TEMPLATES:
            self._templates[key] = template
        return template
