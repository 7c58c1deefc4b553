"""From the outbox's statistics to what the law looks at, for the destinations of one scaler."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from pgoutbox_operator import clock
from pgoutbox_operator.scaling import Outbox, Worker, open_destinations

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from pgoutbox.database.statistics import DestinationStatistics, Statistics, WorkerStatistics

CLOSED = "closed"
"""A breaker that is half open lets a probe through, and no backlog."""


def outbox_of(found: Statistics, destinations: Collection[str], *, fresh: float) -> Outbox:
    """``destinations``: those that count; none named: all.

    ``fresh``: seconds for which a heartbeat speaks for its worker.
    """
    wanted = {
        name: counts
        for name, counts in found.destinations.items()
        if not destinations or name in destinations
    }
    told = (
        _read(worker, found.at, destinations)
        for worker in found.workers
        if _serves(worker, destinations)
    )
    workers = tuple(worker for worker in told if worker is not None)
    opened = open_destinations(workers, fresh=fresh)
    closed = [counts for name, counts in wanted.items() if name not in opened]
    return Outbox(
        at=found.at,
        ready=sum(each.ready for each in closed),
        oldest_ready_age=max((each.oldest_ready_age for each in closed), default=0.0),
        undelivered=sum(each.undelivered for each in wanted.values()),
        scheduled=sum(each.scheduled for each in wanted.values()),
        next_due_in=_next_due_in(wanted.values()),
        lanes=_lanes(closed, found.cap),
        capped=any(_is_capped(each, found.cap) for each in wanted.values()),
        workers=workers,
    )


def dead(found: Statistics, destinations: Collection[str]) -> int:
    """Dead messages of these destinations."""
    return sum(
        counts.dead
        for name, counts in found.destinations.items()
        if not destinations or name in destinations
    )


def _next_due_in(found: Iterable[DestinationStatistics]) -> float | None:
    return min((each.next_due_in for each in found if each.next_due_in is not None), default=None)


def _lanes(found: Collection[DestinationStatistics], cap: int) -> int | None:
    """Where one message without an ordering key is under way, many may be."""
    if any(each.ready_unordered != 0 or each.processing_unordered != 0 for each in found):
        return None
    # "At least so many" is no limit. Lanes under a lease are found among what is processing.
    if any(max(each.ready_lanes, each.processing) >= cap for each in found):
        return None
    return sum(each.ready_lanes + (each.processing_lanes or 0) for each in found) or None


def _takes_nothing(said: Mapping[str, Any]) -> bool:
    return said.get("breaker", CLOSED) != CLOSED or bool(said.get("stopped"))


def _serves(worker: WorkerStatistics, destinations: Collection[str]) -> bool:
    """One that names none may serve any."""
    if not destinations or not worker.destinations:
        return True
    return any(name in destinations for name in worker.destinations)


def _is_capped(counts: DestinationStatistics, cap: int) -> bool:
    return max(counts.ready, counts.waiting, counts.scheduled, counts.processing) >= cap


def _read(worker: WorkerStatistics, now: float, destinations: Collection[str]) -> Worker | None:
    """None for a heartbeat that nobody can make sense of: the others can be read."""
    try:
        read = _worker(worker, now, destinations)
    except (TypeError, ValueError, OverflowError, AttributeError):
        return None
    return read if math.isfinite(read.busy_seconds + read.seen_age + read.uptime) else None


def _worker(worker: WorkerStatistics, now: float, destinations: Collection[str]) -> Worker:
    counted = worker.counters
    seen_at = now - worker.seen_age
    said = worker.destinations
    return Worker(
        incarnation=worker.incarnation,
        seen_age=worker.seen_age,
        uptime=max(0.0, seen_at - clock.parse(worker.started_at)),
        slots=_slots(worker, destinations),
        running=worker.state == "running",
        finished=int(counted.get("published", 0)) + int(counted.get("buried", 0)),
        attempts=int(counted.get("attempts", 0)),
        failed=int(counted.get("failed", 0)),
        busy_seconds=float(counted.get("busy_seconds", 0.0)),
        serves=frozenset(said),
        opened=frozenset(name for name, each in said.items() if _takes_nothing(each)),
    )


def _slots(worker: WorkerStatistics, destinations: Collection[str]) -> int:
    """Of the narrowest destination that counts: with more lanes than these another worker helps."""
    narrow = (
        int(said["slots"])
        for name, said in worker.destinations.items()
        if "slots" in said and (not destinations or name in destinations)
    )
    return min([worker.slots, *narrow])
