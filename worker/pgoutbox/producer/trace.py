"""The trace context of whoever enqueues, stored with the message.

It is read here and not when the message is published: by then the request that caused it is
long gone. OpenTelemetry is looked for at the first enqueue and not needed.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


def current_headers() -> dict[str, str]:
    """What the configured propagators write (traceparent, tracestate, baggage), or nothing.

    Never raises: a message is worth more than its trace.
    """
    inject = _injector()
    if inject is None:
        return {}
    carrier: dict[str, str] = {}
    try:
        inject(carrier)
    except Exception:  # noqa: BLE001 - whatever a propagator raises, the business goes on
        return {}
    return carrier


@cache
def _injector() -> Callable[[dict[str, str]], None] | None:
    try:
        from opentelemetry import context, propagate  # noqa: PLC0415 - only where it is installed
    except Exception:  # noqa: BLE001 - not installed, or broken: no traces either way
        return None

    def inject(carrier: dict[str, str]) -> None:
        if current := context.get_current():
            propagate.inject(carrier, context=current)

    return inject
