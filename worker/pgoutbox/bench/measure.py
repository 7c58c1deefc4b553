"""One run: floor, floor of two, worker, worker with batches, latency."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from pgoutbox.bench.floor import floor, floor_of_two
from pgoutbox.bench.latency import latency, percentiles
from pgoutbox.bench.workers import IN_FLIGHT, result, start

if TYPE_CHECKING:
    from collections.abc import Callable

    from pgoutbox.bench.place import Place

RATE = 200.0
SIZE = 500
MICRO = 1e6
MILLI = 1e3


@dataclass(frozen=True, slots=True)
class Figures:
    """What a run found. ``ratio`` is worker to floor; latencies begin at COMMIT's return."""

    floor_msgs_per_s: float
    floor2_msgs_per_s: float
    worker_msgs_per_s: float
    batch_msgs_per_s: float
    ratio: float
    latency_p50_ms: float
    latency_p99_ms: float
    cpu_us_per_msg: float
    rss_mb: float

    def as_dict(self) -> dict[str, float]:
        """Rounded to what the measurement is worth."""
        return {name: round(value, 2) for name, value in asdict(self).items()}


def measure(
    place: Place, *, count: int, seconds: float, step: Callable[[str], Callable[[int], None]]
) -> Figures:
    """Run everything, ``count`` messages each. ``step`` is told what comes next."""
    advance = step("floor, one connection")
    place.seed(count, SIZE)
    one = floor(place, count)
    advance(1)

    advance = step("floor, two connections")
    place.seed(count, SIZE)
    two = floor_of_two(place, count)
    advance(1)

    advance = step("worker, a task per message")
    place.seed(count, SIZE)
    worker = result(start(place, "noop://", count, IN_FLIGHT))
    advance(1)

    advance = step("worker, batches")
    place.seed(count, SIZE)
    batch = result(start(place, "noop://?batch=1", count, IN_FLIGHT))
    advance(1)

    place.seed(0, SIZE)
    advance = step(f"latency at {RATE:g} messages/s")
    values, rss = latency(place, rate=RATE, seconds=seconds, size=SIZE, advance=advance)
    p50, p99 = percentiles(values)
    speed = worker["finished"] / worker["seconds"]
    return Figures(
        floor_msgs_per_s=one,
        floor2_msgs_per_s=two,
        worker_msgs_per_s=speed,
        batch_msgs_per_s=batch["finished"] / batch["seconds"],
        ratio=speed / one,
        latency_p50_ms=p50 * MILLI,
        latency_p99_ms=p99 * MILLI,
        cpu_us_per_msg=worker["cpu_seconds"] / worker["finished"] * MICRO,
        rss_mb=rss,
    )
