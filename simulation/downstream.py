"""What the destinations answer, and when."""

from __future__ import annotations

import math
import random
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal, TypeAlias

Answer: TypeAlias = Literal["published", "failed", "refused"]

SERVICE_TABLE = 8192
SPREAD = 0.5
"""Sigma of the lognormal service times."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """From ``begin`` to ``end`` one destination, or all of them, fail or accept less."""

    begin: float
    end: float
    destination: int | None = None
    accepts: float = 0.0
    """Messages a second; 0: it is dead."""
    seconds: float = 5.0
    """How long a failed attempt takes."""

    def covers(self, now: float, destination: int) -> bool:
        """Whether it concerns this attempt."""
        return self.begin <= now < self.end and self.destination in (None, destination)


class Downstream:
    """Service times and failures. Each message brings its own service time, whoever sends it."""

    def __init__(self, *, service: float, faults: tuple[Fault, ...], seed: int) -> None:
        self._faults = faults
        self._seconds = _service_times(service, seed)
        self._tokens = 0.0
        self._refilled = 0.0

    def seconds(self, row: int) -> float:
        """What the destination needs for it when all is well."""
        return self._seconds[row & (SERVICE_TABLE - 1)]

    def attempt(self, now: float, row: int, destination: int) -> tuple[float, bool]:
        """Seconds until the answer, and whether it is a good one."""
        for fault in self._faults:
            if fault.covers(now, destination):
                if fault.accepts and self._accepted(now, fault.accepts):
                    break
                return fault.seconds, False
        return self.seconds(row), True

    def _accepted(self, now: float, rate: float) -> bool:
        self._tokens = min(rate, self._tokens + (now - self._refilled) * rate)
        self._refilled = now
        if self._tokens < 1.0:
            return False
        self._tokens -= 1.0
        return True


@lru_cache(maxsize=4)
def _service_times(service: float, seed: int) -> tuple[float, ...]:
    rng = random.Random(seed)  # noqa: S311 - a simulation
    mean = math.log(service) - SPREAD**2 / 2
    return tuple(rng.lognormvariate(mean, SPREAD) for _ in range(SERVICE_TABLE))
