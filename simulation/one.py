"""One run."""

from __future__ import annotations

import random
from functools import lru_cache
from typing import TYPE_CHECKING

from simulation.world import World

if TYPE_CHECKING:
    from simulation.messages import Arrival
    from simulation.scaler import Scaler
    from simulation.shape import Shape
    from simulation.tally import Result


def simulate(shape: Shape, scaler: Scaler, seed: int) -> Result:
    """The same arrivals and service times for each scaler."""
    return World(shape, _arrivals(shape, seed), seed).run(scaler)


@lru_cache(maxsize=4)
def _arrivals(shape: Shape, seed: int) -> list[Arrival]:
    return shape.arrivals(random.Random(seed))  # noqa: S311 - a simulation
