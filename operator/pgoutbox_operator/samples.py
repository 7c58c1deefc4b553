"""From the outbox's statistics to what the law looks at, for the destinations of one scaler."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pgoutbox_operator import clock
from pgoutbox_operator.scaling import Outbox, Worker

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from pgoutbox.database.statistics import DestinationStatistics, Statistics, WorkerStatistics

LIVE_SECONDS = 15.0
"""Three heartbeats: a worker that was silent for longer serves nobody."""
CLOSED = "closed"
"""A breaker that is half open lets a probe through, and no backlog."""


def outbox_of(found: Statistics, destinations: Collection[str]) -> Outbox:
    """``destinations``: those that count; none named: all."""
    wanted = {
        name: counts
        for name, counts in found.destinations.items()
        if not destinations or name in destinations
    }
    workers = [worker for worker in found.workers if _serves(worker, destinations)]
    closed = {name: counts for name, counts in wanted.items() if not is_out(name, workers)}
    return Outbox(
        at=found.at,
        ready=sum(each.ready for each in closed.values()),
        oldest_ready_age=max((each.oldest_ready_age for each in closed.values()), default=0.0),
        undelivered=sum(each.undelivered for each in wanted.values()),
        scheduled=sum(each.scheduled for each in wanted.values()),
        capped=any(_is_capped(each, found.cap) for each in wanted.values()),
        workers=tuple(_worker(each, found.at) for each in workers),
    )


def dead(found: Statistics, destinations: Collection[str]) -> int:
    """Dead messages of these destinations."""
    return sum(
        counts.dead
        for name, counts in found.destinations.items()
        if not destinations or name in destinations
    )


def is_out(destination: str, workers: Sequence[WorkerStatistics]) -> bool:
    """Every live worker that serves it says that it takes nothing now; one says so for itself."""
    said = [
        worker.destinations[destination]
        for worker in workers
        if worker.seen_age <= LIVE_SECONDS and destination in worker.destinations
    ]
    return bool(said) and all(_is_out(each) for each in said)


def _is_out(said: Mapping[str, Any]) -> bool:
    return said.get("breaker", CLOSED) != CLOSED or bool(said.get("stopped"))


def _serves(worker: WorkerStatistics, destinations: Collection[str]) -> bool:
    """One that names none may serve any."""
    if not destinations or not worker.destinations:
        return True
    return any(name in destinations for name in worker.destinations)


def _is_capped(counts: DestinationStatistics, cap: int) -> bool:
    return max(counts.ready, counts.waiting, counts.scheduled, counts.processing) >= cap


def _worker(worker: WorkerStatistics, now: float) -> Worker:
    counted = worker.counters
    published = int(counted.get("published", 0))
    buried = int(counted.get("buried", 0))
    returned = int(counted.get("returned", 0))
    seen_at = now - worker.seen_age
    return Worker(
        incarnation=worker.incarnation,
        seen_age=worker.seen_age,
        uptime=max(0.0, seen_at - clock.parse(worker.started_at)),
        slots=worker.slots,
        running=worker.state == "running",
        finished=published + buried,
        attempts=int(counted.get("attempts", published + buried + returned)),
        failed=int(counted.get("failed", returned)),
        busy_seconds=float(counted.get("busy_seconds", 0.0)),
        serves=frozenset(worker.destinations),
        opened=frozenset(name for name, said in worker.destinations.items() if _is_out(said)),
    )
