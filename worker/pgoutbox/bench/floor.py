"""The floor: the product's own claim and finalize in turn, and nothing else."""

from __future__ import annotations

import multiprocessing
import sys
import time
from datetime import timedelta
from typing import TYPE_CHECKING

from pgoutbox.dispatch.claim import CLAIM, MAX_CLAIM_BYTES, as_batch
from pgoutbox.dispatch.finalize import FINALIZE, parameters
from pgoutbox.events import Settled
from pgoutbox.outcome import Finish, Published

if TYPE_CHECKING:
    from multiprocessing.synchronize import Barrier

    from pgoutbox.bench.place import Place

BATCH = 500


def floor(place: Place, count: int) -> float:
    """Messages per second on one connection. ``count`` of them are due."""
    started = time.perf_counter()
    finished = drain(place, Gate())
    if finished != count:
        raise RuntimeError(f"the floor finalized {finished} of {count} messages")
    return count / (time.perf_counter() - started)


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


class Gate:
    """Opens at once; a barrier stands in for it where two start together."""

    def wait(self) -> None:
        """Nothing to wait for."""


def _drain_behind(place: Place, barrier: Barrier) -> None:
    drain(place, barrier)
    sys.exit(0)


def drain(place: Place, gate: Gate | Barrier) -> int:
    """Claim 500, finalize 500, until nothing is due; how many messages that were."""
    total = 0
    with place.connect() as conn, conn.cursor(binary=True) as writer:
        conn.prepare_threshold = 0
        reader = conn.cursor(binary=True)
        wanted = {
            "destinations": ["default"],
            "slots": [BATCH],
            "owner": "floor",
            "lease": timedelta(seconds=30),
            "budget": MAX_CLAIM_BYTES,
        }
        gate.wait()
        while messages := as_batch(reader.execute(CLAIM, wanted).fetchall()):
            done = [Settled(message, Published(), Finish(), 0.0, 0.0) for message in messages]
            total += len(writer.execute(FINALIZE, parameters(done)).fetchall())
    return total
