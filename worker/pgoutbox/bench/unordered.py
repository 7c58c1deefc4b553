"""Scenarios without ordering keys: what a claim costs beside all that it must not pay for."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from pgoutbox.bench.claiming import drain
from pgoutbox.bench.figures import Found, of_loop, of_worker
from pgoutbox.bench.seeds import DEAD, DUE, FINISHED, LATER, sow
from pgoutbox.bench.workers import work

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pgoutbox.bench.place import Place

MILLION = 1_000_000
FEW = 40_000
"""Due messages whose claims are timed: hundreds of them."""

# A snapshot is taken by the first statement and kept until the transaction ends.
HOLD = b"BEGIN ISOLATION LEVEL REPEATABLE READ"
SNAPSHOT = b"SELECT count(*) FROM outbox WHERE id = 0"

# As short as their rules allow: after two seconds of a drain the past of the leases fills up.
SHORT_LEASES = {
    "PGOUTBOX_LEASE__DURATION": "2",
    "PGOUTBOX_LEASE__RENEW": "0.6",
    "PGOUTBOX_DESTINATIONS__DEFAULT__PUBLISH_TIMEOUT": "1",
}


def baseline(place: Place, scale: float) -> Found:
    """A clean table with 40,000 messages that are due."""
    count = scaled(FEW, scale)
    sow(place, (DUE, {"count": count}))
    return of_loop(drain(place), count)


def history(place: Place, scale: float) -> Found:
    """1,000,000 finished messages are kept, and 40,000 are due."""
    return _beside(place, FINISHED, scale)


def backoff(place: Place, scale: float) -> Found:
    """1,000,000 messages wait for their next attempt, and 40,000 are due."""
    return _beside(place, LATER, scale)


def dead(place: Place, scale: float) -> Found:
    """1,000,000 dead letters, and 40,000 messages are due."""
    return _beside(place, DEAD, scale)


def xmin(place: Place, scale: float) -> Found:
    """A report runs while 200,000 messages are drained, so that nothing can be vacuumed."""
    count = scaled(200_000, scale)
    sow(place, (DUE, {"count": count}))
    with held_horizon(place):
        return of_loop(drain(place), count, tenths=True)


def xmin_worker(place: Place, scale: float) -> Found:
    """A worker whose leases last 2 seconds drains 200,000 messages while a report runs."""
    count = scaled(200_000, scale)
    sow(place, (DUE, {"count": count}))
    with held_horizon(place):
        return of_worker(work(place, count, settings=SHORT_LEASES), count, tenths=True)


def bulk_backlog(place: Place, scale: float) -> Found:
    """3,000,000 are due; the first 40,000 of them are drained."""
    sow(place, (DUE, {"count": scaled(3 * MILLION, scale)}))
    count = scaled(FEW, scale)
    return of_loop(drain(place, most=count), count)


def scaled(count: int, scale: float) -> int:
    """At least one claim's worth."""
    return max(int(count * scale), 100)


@contextlib.contextmanager
def held_horizon(place: Place) -> Iterator[None]:
    """Another session's transaction that sees the table as it is now."""
    with place.connect() as other:
        other.execute(HOLD)
        other.execute(SNAPSHOT)
        yield
        other.rollback()


def _beside(place: Place, burden: bytes, scale: float) -> Found:
    count = scaled(FEW, scale)
    sow(place, (burden, {"count": scaled(MILLION, scale)}), (DUE, {"count": count}))
    return of_loop(drain(place), count)
