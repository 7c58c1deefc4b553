"""The floor: the product's own claim and finalize in turn, and nothing else."""

from __future__ import annotations

import multiprocessing
import sys
import time
from typing import TYPE_CHECKING

from pgoutbox.bench.claiming import drain

if TYPE_CHECKING:
    from multiprocessing.synchronize import Barrier

    from pgoutbox.bench.place import Place

BATCH = 500


def floor(place: Place, count: int) -> float:
    """Messages per second on one connection. ``count`` of them are due."""
    drained = drain(place, batch=BATCH)
    if drained.finished != count:
        raise RuntimeError(f"the floor finalized {drained.finished} of {count} messages")
    return drained.msgs_per_s


def floor_of_two(place: Place, count: int) -> float:
    """Messages per second on two connections, each in a process of its own."""
    context = multiprocessing.get_context("spawn")
    barrier = context.Barrier(3)
    processes = [context.Process(target=_drain_behind, args=(place, barrier)) for _ in range(2)]
    for process in processes:
        process.start()
    barrier.wait(timeout=60)
    started = time.perf_counter()
    for process in processes:
        process.join()
    if any(process.exitcode for process in processes):
        raise RuntimeError("a process of the two-connection floor failed")
    return count / (time.perf_counter() - started)


def _drain_behind(place: Place, barrier: Barrier) -> None:
    drain(place, batch=BATCH, gate=barrier)
    sys.exit(0)
