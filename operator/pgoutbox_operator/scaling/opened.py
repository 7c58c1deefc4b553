"""Which destinations are down for everybody, so that their backlog calls for nobody."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pgoutbox_operator.scaling.sample import Worker

GROWN = 60.0
"""Seconds after which a worker has seen for itself whether a destination works."""


def grown(workers: Iterable[Worker]) -> list[Worker]:
    """Those whose word counts: everybody's, where all are new."""
    everybody = list(workers)
    return [worker for worker in everybody if worker.uptime >= GROWN] or everybody


def open_destinations(workers: Iterable[Worker], *, fresh: float) -> frozenset[str]:
    """Those whose breaker is open in every worker that serves them and was seen within ``fresh``.

    A worker that has just started does not know yet; it finds out at the price of a few attempts.
    """
    live = [worker for worker in workers if worker.running and worker.seen_age <= fresh]
    served = frozenset().union(*(worker.serves for worker in live))
    return frozenset(
        name
        for name in served
        if all(name in w.opened for w in grown(w for w in live if name in w.serves))
    )
