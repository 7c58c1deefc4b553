"""From the return of COMMIT to the entry of ``publish``, at a steady rate."""

from __future__ import annotations

import time
from statistics import quantiles
from typing import TYPE_CHECKING

import pgoutbox
from pgoutbox.bench.workers import result, start

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from pgoutbox.bench.place import Place

WARM_UP = 1.0
"""Seconds of the same load that are not counted."""


def latency(  # noqa: PLR0913 - the two last are one scenario's
    place: Place,
    *,
    rate: float,
    seconds: float,
    size: int,
    advance: Callable[[int], None],
    destinations: Sequence[str] = ("default",),
    settings: Mapping[str, str] | None = None,
) -> tuple[list[float], float]:
    """Seconds per message, and the worker's resident set in MB. Shipped defaults, unless given.

    The messages go to ``destinations`` in turn; what ``settings`` say of these is `noop://`.
    """
    count = int(rate * (seconds + WARM_UP))
    worker = start(place, "stamp:", count, settings)
    try:
        committed = _produce(place, _messages(count, size, destinations), rate, advance)
        measured = result(worker)
    finally:
        worker.kill()
        worker.wait()
    counted = list(committed.items())[int(rate * WARM_UP) :]
    entered = measured["entered"]
    return [entered[message_id] - at for message_id, at in counted], measured["rss_mb"]


def _messages(count: int, size: int, destinations: Sequence[str]) -> Iterator[pgoutbox.Message]:
    body = b"x" * size
    for number in range(count):
        yield pgoutbox.Message(
            aggregate_type="order",
            aggregate_id=str(number),
            event_type="created",
            payload=body,
            content_type="text/plain",
            destination=destinations[number % len(destinations)],
        )


def _produce(
    place: Place,
    messages: Iterable[pgoutbox.Message],
    rate: float,
    advance: Callable[[int], None],
) -> dict[str, float]:
    """One transaction per message, evenly spaced; when each COMMIT returned."""
    committed: dict[str, float] = {}
    with place.connect() as conn:
        conn.autocommit = False
        begin = time.monotonic() + WARM_UP
        for number, message in enumerate(messages):
            time.sleep(max(0.0, begin + number / rate - time.monotonic()))
            message_id = pgoutbox.enqueue(conn, message)
            conn.commit()
            committed[str(message_id)] = time.monotonic()
            advance(1)
    return committed


def percentiles(values: list[float]) -> tuple[float, float]:
    """The median and the 99th percentile."""
    cuts = quantiles(values, n=100)
    return cuts[49], cuts[98]
