"""``python -m simulation.deletion_cost``: whether it pays to have the idlest pods taken away first.

Everything is as in `python -m simulation`, but that a publish may take longer, that a drain may be
too short for it, and that whoever is free may be the next to claim a message.
"""

from __future__ import annotations

import os
import random
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from itertools import product
from statistics import fmean, quantiles
from typing import TYPE_CHECKING, NamedTuple, get_args

import click

from pgoutbox.dispatch.drain import DrainTimes
from pgoutbox_operator.scaling import Policy
from simulation.campaign import SEEDS
from simulation.scale_in import Choice, ScaleIns
from simulation.scalers.operator import OperatorScaler
from simulation.shape import RATE, Shape
from simulation.shapes import SHAPES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from simulation.messages import Arrival

SOFTS = (DrainTimes().soft, 90.0)
"""A worker's default, and longer than any publish here; the settings refuse a publish that might
take longer than its drain.
"""
NAMES = ("burst of a minute", "burst of 5 minutes", "diurnal", "spiky", "ramp")
"""Shapes that scale in while they work."""
CHOICES: tuple[Choice, ...] = get_args(Choice)


class Replica(NamedTuple):
    """What one pod does. Durations in seconds."""

    slots: int
    service: float
    objective: float

    def __str__(self) -> str:
        return f"{self.slots} of {self.service:g} s"

    @property
    def rate(self) -> float:
        """Messages a second."""
        return self.slots / self.service


REPLICAS = (Replica(2, 2, 30), Replica(2, 10, 60), Replica(2, 20, 90), Replica(20, 20, 90))


class Run(NamedTuple):
    """One shape and seed, with one kind of replica and one choice."""

    replica: Replica
    choice: Choice
    late_percent: float
    replica_hours: float
    slowest: float
    """So many seconds 99 % of the deliveries took at most."""
    messages: int
    pods: int
    under_way: int
    waiting: int
    interrupted: int
    terminating_hours: float


MEASURES: dict[str, Callable[[list[Run]], float]] = {
    "late, %": lambda runs: fmean(run.late_percent for run in runs),
    "99 % within, s": lambda runs: fmean(run.slowest for run in runs),
    "replica-hours": lambda runs: sum(run.replica_hours for run in runs),
    "of them terminating": lambda runs: sum(run.terminating_hours for run in runs),
    "publishing, per pod": lambda runs: (
        sum(run.under_way for run in runs) / sum(run.pods for run in runs)
    ),
    "to hand back, in all": lambda runs: sum(run.waiting for run in runs),
    "interrupted, %": lambda runs: (
        100 * sum(run.interrupted for run in runs) / sum(run.messages for run in runs)
    ),
}


def simulate(name: str, replica: Replica, choice: Choice, soft: float, seed: int) -> Run:
    """One run."""
    shape = _shape(name, replica)
    policy = Policy(
        max_replicas=shape.max_replicas, seed_rate=shape.seed_rate, objective=replica.objective
    )
    arrivals = shape.arrivals(random.Random(seed))  # noqa: S311 - a simulation
    world = ScaleIns(shape, arrivals, seed, choice=choice, soft=soft)
    world.tally.objective = replica.objective
    result, toll = world.run(OperatorScaler(shape, policy)), world.toll
    return Run(
        replica,
        choice,
        result.late_percent,
        result.replica_hours,
        quantiles(toll.latencies, n=100)[-1],
        len(arrivals),
        toll.pods,
        toll.under_way,
        toll.waiting,
        toll.interrupted,
        toll.terminating_seconds / 3600,
    )


def _shape(name: str, replica: Replica) -> Shape:
    """With as much load for each replica as the original has."""
    (shape,) = (shape for shape in SHAPES if shape.name == name)
    share = replica.rate / RATE

    def arrivals(rng: random.Random) -> list[Arrival]:
        return [each for each in shape.arrivals(rng) if rng.random() < share]

    return replace(
        shape,
        arrivals=arrivals,
        slots=replica.slots,
        service=replica.service,
        seed_rate=replica.rate,
    )


def table(runs: Iterable[Run]) -> str:
    """Sums and means over shapes and seeds."""
    runs = list(runs)
    lines = [
        "| a replica's slots | | " + " | ".join(CHOICES) + " |",
        "|---|---|" + "---|" * len(CHOICES),
    ]
    for replica, (measure, of) in product(
        dict.fromkeys(run.replica for run in runs), MEASURES.items()
    ):
        chosen = ([r for r in runs if (r.replica, r.choice) == (replica, c)] for c in CHOICES)
        cells = [f"{of(found):.3g}" for found in chosen]
        lines.append(f"| {replica} | {measure} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


@click.command()
@click.option("--seed", "seeds", multiple=True, type=int, help="Instead of 1, 2 and 3.")
@click.option("--jobs", default=os.cpu_count() or 1, help="Processes; one for each core.")
def main(seeds: tuple[int, ...], jobs: int) -> None:
    """Simulate scale-ins that take away the pods that Kubernetes picks, or idle ones."""
    with ProcessPoolExecutor(jobs) as pool:
        for soft in SOFTS:
            asked = product(NAMES, REPLICAS, CHOICES, [soft], seeds or SEEDS)
            runs = pool.map(simulate, *zip(*asked, strict=True))
            click.echo(f"A drain waits for {soft:g} seconds.\n\n{table(runs)}\n")


if __name__ == "__main__":
    main()
