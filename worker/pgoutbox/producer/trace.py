"""The trace context of whoever enqueues, stored with the message.

It is read here and not when the message is published: by then the request that caused it is
long gone. OpenTelemetry is not needed, and not imported unless the application has done so: only
then can there be a context.
"""

from __future__ import annotations

import sys
from functools import cache
from typing import TYPE_CHECKING, NamedTuple

from pgoutbox._version import __version__

if TYPE_CHECKING:
    from collections.abc import Callable
    from uuid import UUID

    from opentelemetry.context import Context
    from opentelemetry.trace import Tracer

SCOPE = "outbox.producer"
SCHEMA_URL = "https://opentelemetry.io/schemas/1.44.0"


class Creation(NamedTuple):
    """The message that the context is stored with."""

    destination: str
    message_id: UUID


def current_headers(creation: Creation | None = None) -> dict[str, str]:
    """What the configured propagators write (traceparent, tracestate, baggage), or nothing.

    Within a span that is recorded, ``creation`` becomes a span of its own, and the context is that
    one's. Never raises: a message is worth more than its trace.
    """
    if "opentelemetry.context" not in sys.modules:
        return {}
    write = _writer()
    if write is None:
        return {}
    carrier: dict[str, str] = {}
    try:
        write(carrier, creation)
    except Exception:  # noqa: BLE001 - whatever a propagator raises, the business goes on
        return {}
    return carrier


@cache
def _writer() -> Callable[[dict[str, str], Creation | None], None] | None:
    try:
        from opentelemetry import context, propagate, trace  # noqa: PLC0415 - only where it is used
    except Exception:  # noqa: BLE001 - not installed, or broken: no traces either way
        return None
    # Of the provider that the application sets, also when it does so later.
    tracer = trace.get_tracer(SCOPE, __version__, schema_url=SCHEMA_URL)

    def write(carrier: dict[str, str], creation: Creation | None) -> None:
        current = context.get_current()
        if not current:
            return
        if creation is not None and trace.get_current_span(current).is_recording():
            current = _created(tracer, creation, current)
        propagate.inject(carrier, context=current)

    return write


def _created(tracer: Tracer, creation: Creation, current: Context) -> Context:
    from opentelemetry import trace  # noqa: PLC0415 - as above

    span = tracer.start_span(
        f"create {creation.destination}",
        context=current,
        kind=trace.SpanKind.PRODUCER,
        attributes={
            "messaging.system": "outbox",
            "messaging.operation.name": "create",
            "messaging.operation.type": "create",
            "messaging.destination.name": creation.destination,
            "messaging.message.id": str(creation.message_id),
        },
    )
    span.end()
    return trace.set_span_in_context(span, current)
