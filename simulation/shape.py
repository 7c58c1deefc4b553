"""What one simulation is about: the load, the fleet's limits and what goes wrong."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import random
    from collections.abc import Callable

    from simulation.downstream import Fault
    from simulation.messages import Arrival

SERVICE = 2.0
SLOTS = 2
RATE = SLOTS / SERVICE
"""Messages a second of one replica with nobody beside it."""
OBJECTIVE = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Contention:
    """Gunther's universal scalability law: what replicas cost each other."""

    sigma: float = 0.004
    kappa: float = 0.00035

    def slowdown(self, replicas: int, slots: int) -> list[float]:
        """By how much longer everything takes, for each number of slots in use."""
        sizes = [max(1.0, used / slots) for used in range(replicas * slots + 1)]
        return [1 + self.sigma * (n - 1) + self.kappa * n * (n - 1) for n in sizes]


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """One scenario. Durations in seconds."""

    name: str
    says: str
    """What it is, for the table."""
    duration: float
    arrivals: Callable[[random.Random], list[Arrival]]
    destinations: int = 1
    ordered: bool = False
    faults: tuple[Fault, ...] = ()
    failing: bool = False
    """Whether any attempt may fail."""
    database_away: tuple[float, float] | None = None
    contention: Contention = field(default_factory=Contention)
    slots: int = SLOTS
    service: float = SERVICE
    startup: float = 20.0
    max_replicas: int = 40
    min_replicas: int = 1
    replicas: int = 1
    """To begin with."""
    restart_at: float | None = None
    """The operator forgets everything."""
    rollout_at: float | None = None
    seed_rate: float | None = RATE
    noise: float = 0.0
    """Relative error of every count that a scaler sees."""
    skew: tuple[float, float] | None = None
    """At that moment the operator's clock jumps by so many seconds."""
    peak: int = 19
    """Replicas that its greatest load needs, for a fleet of a fixed size."""
