"""From the return of COMMIT to the entry of ``publish``, at a steady rate."""

from __future__ import annotations

import time
from statistics import quantiles
from typing import TYPE_CHECKING

import pgoutbox
from pgoutbox.bench.workers import result, start

if TYPE_CHECKING:
    from collections.abc import Callable

    from pgoutbox.bench.place import Place

WARM_UP = 1.0
"""Seconds of the same load that are not counted."""


def latency(
    place: Place, *, rate: float, seconds: float, size: int, advance: Callable[[int], None]
) -> tuple[list[float], float]:
    """Seconds per message, and the worker's resident set in MB. Shipped defaults throughout."""
    count = int(rate * (seconds + WARM_UP))
    worker = start(place, "stamp:", count)
    try:
        committed = _produce(place, count, rate, size, advance)
        measured = result(worker)
    finally:
        worker.kill()
        worker.wait()
    counted = list(committed.items())[int(rate * WARM_UP) :]
    entered = measured["entered"]
    return [entered[message_id] - at for message_id, at in counted], measured["rss_mb"]


def _produce(
    place: Place, count: int, rate: float, size: int, advance: Callable[[int], None]
) -> dict[str, float]:
    """One transaction per message, evenly spaced; when each COMMIT returned."""
    committed: dict[str, float] = {}
    body = b"x" * size
    with place.connect() as conn:
        conn.autocommit = False
        begin = time.monotonic() + WARM_UP
        for number in range(count):
            time.sleep(max(0.0, begin + number / rate - time.monotonic()))
            message = pgoutbox.Message(
                aggregate_type="order",
                aggregate_id=str(number),
                event_type="created",
                payload=body,
                content_type="text/plain",
            )
            message_id = pgoutbox.enqueue(conn, message)
            conn.commit()
            committed[str(message_id)] = time.monotonic()
            advance(1)
    return committed


def percentiles(values: list[float]) -> tuple[float, float]:
    """The median and the 99th percentile."""
    cuts = quantiles(values, n=100)
    return cuts[49], cuts[98]
