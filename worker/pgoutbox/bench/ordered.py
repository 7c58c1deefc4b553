"""Scenarios with ordering keys, drained by a worker in a process of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pgoutbox.bench.child import FLAKY, FLAKY_EVERY
from pgoutbox.bench.figures import Found, of_worker
from pgoutbox.bench.seeds import (
    BLOCKED_LANES,
    DUE,
    FINISHED,
    HALF_IN_ONE_LANE,
    IN_LANES,
    sow,
)
from pgoutbox.bench.unordered import held_horizon, scaled
from pgoutbox.bench.workers import work

if TYPE_CHECKING:
    from pgoutbox.bench.place import Place

ROWS = 200_000
KEYS = 5_000

# The backoff of the failed ones shall not be what is measured.
SOON = {"PGOUTBOX_DESTINATIONS__DEFAULT__RETRY__BASE": "0.05"}


def lanes_uniform(place: Place, scale: float) -> Found:
    """200,000 messages, evenly over 5,000 keys."""
    count = scaled(ROWS, scale)
    sow(place, (IN_LANES, {"count": count, "lanes": scaled(KEYS, scale)}))
    return of_worker(work(place, count), count)


def lanes_hot(place: Place, scale: float) -> Found:
    """Half of 200,000 messages have one key, the others are spread over 5,000."""
    count = scaled(ROWS, scale)
    sow(place, (HALF_IN_ONE_LANE, {"count": count, "lanes": scaled(KEYS, scale)}))
    return of_worker(work(place, count), count)


def lanes_blocked(place: Place, scale: float) -> Found:
    """100,000 keys are blocked by a dead head; 10,000 others have 10 messages each."""
    lanes = scaled(10_000, scale)
    sow(
        place,
        (BLOCKED_LANES, {"count": scaled(100_000, scale)}),
        (IN_LANES, {"count": 10 * lanes, "lanes": lanes}),
    )
    return of_worker(work(place, 10 * lanes), 10 * lanes)


def xmin_hot_lane(place: Place, scale: float) -> Found:
    """40,000 messages in one lane, drained while a report runs."""
    count = scaled(40_000, scale)
    sow(place, (IN_LANES, {"count": count, "lanes": 1}))
    with held_horizon(place):
        return of_worker(work(place, count), count, tenths=True)


def mixed(place: Place, scale: float) -> Found:
    """100,000 in lanes and 100,000 without; a twentieth fails once; 200,000 finished are kept."""
    count = scaled(ROWS // 2, scale)
    sow(
        place,
        (FINISHED, {"count": scaled(ROWS, scale)}),
        (DUE, {"count": count}),
        (IN_LANES, {"count": count, "lanes": scaled(KEYS, scale)}),
    )
    worked = work(place, 2 * count, FLAKY, SOON)
    by = f"one worker process; every {FLAKY_EVERY}th message fails at its first attempt"
    return of_worker(worked, 2 * count, by=by)
