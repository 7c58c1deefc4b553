"""What became of spans. Needs no OpenTelemetry, so that the counters exist without it."""

from __future__ import annotations

from dataclasses import dataclass, field

QUEUE_FULL, REJECTED, EXIT = "queue_full", "rejected", "exit"
REASONS = (QUEUE_FULL, REJECTED, EXIT)
"""Too many waited for the collector; it does not want them; the process ended before it had
them."""


@dataclass(slots=True)
class SpanCounts:
    """Since the worker started."""

    exported: int = 0
    dropped: dict[str, int] = field(default_factory=lambda: dict.fromkeys(REASONS, 0))
