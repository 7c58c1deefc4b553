"""What a simulation is judged by."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple


class Point(NamedTuple):
    """One moment, for the plots."""

    at: float
    replicas: int
    ready_replicas: int
    backlog: int
    oldest_age: float
    arrivals: float


@dataclass(slots=True)
class Tally:
    """Counts while it runs."""

    objective: float
    delivered: int = 0
    late: int = 0
    """Delivered later than the objective, or never."""
    owed: int = 0
    """All that were to be delivered."""
    failed_calls: int = 0
    pod_seconds: float = 0.0
    reversals: int = 0
    changes: int = 0
    direction: int = 0
    points: list[Point] = field(default_factory=list)

    def delivered_after(self, seconds: float) -> None:
        """One message."""
        self.delivered += 1
        if seconds > self.objective:
            self.late += 1

    def scaled(self, before: int, after: int) -> None:
        """The replicas that were asked for changed."""
        direction = 1 if after > before else -1
        self.changes += 1
        self.reversals += self.direction == -direction
        self.direction = direction


class Result(NamedTuple):
    """One shape, one scaler, one seed."""

    shape: str
    scaler: str
    seed: int
    late_percent: float
    replica_hours: float
    reversals: int
    failed_calls: int
    left: int
    """Messages that were not delivered by the end."""
    points: tuple[Point, ...] = ()
