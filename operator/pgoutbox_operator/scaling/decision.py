"""What the law wants, why, and the numbers behind it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Reason(StrEnum):
    """Why there shall be so many replicas. A closed set: users match on it."""

    STEADY = "Steady"
    """Neither more nor fewer are needed."""
    ARRIVALS = "Arrivals"
    """More, for the rate at which messages arrive."""
    BACKLOG = "Backlog"
    """More, to drain what has piled up before it is older than the objective."""
    SURPLUS = "Surplus"
    """Fewer are enough."""
    STABILIZING = "Stabilizing"
    """Fewer would be enough, but not for long enough, or the last step is too recent."""
    DOWNSTREAM_LIMITED = "DownstreamLimited"
    """The destinations fail: no more than match what they accept."""
    RECOVERING = "Recovering"
    """They accept messages again: more, step by step."""
    DATABASE_BOUND = "DatabaseBound"
    """More get nothing more through: the database is what they wait for."""
    IDLE = "Idle"
    """Nothing to do for long enough: none."""
    WAKE = "Wake"
    """There is something to do, and nobody to do it."""
    BOUNDS = "Bounds"
    """The limits of the policy or of a cap ask for it."""
    STARTING = "Starting"
    """Fewer would be enough, but the operator has not watched for long enough."""
    METRICS_UNAVAILABLE = "MetricsUnavailable"
    """The database did not answer: as they are."""
    METRICS_STALE = "MetricsStale"
    """What is known is too old: as they are."""
    FALLBACK = "Fallback"
    """Nothing has been known for so long that the policy's fallback holds."""
    PAUSED = "Paused"
    """The policy forbids this direction."""


class Limit(StrEnum):
    """What keeps the replicas from what the backlog alone would need."""

    MAX_REPLICAS = "MaxReplicas"
    CONNECTION_BUDGET = "ConnectionBudget"
    ORDERING_KEYS = "OrderingKeys"
    DOWNSTREAM_LIMITED = "DownstreamLimited"
    DATABASE_BOUND = "DatabaseBound"
    RATE_LIMIT = "RateLimit"


@dataclass(frozen=True, slots=True, kw_only=True)
class Numbers:
    """What the decision was made from. Rates per second."""

    ready: int = 0
    oldest_ready_age: float = 0.0
    arrivals: float = 0.0
    """Estimated."""
    finished: float = 0.0
    rate_per_replica: float | None = None
    """Of one replica that is fully used; None while nothing is known of it."""
    utilization: float = 0.0
    failing: float = 0.0
    """Share of attempts that failed."""
    needed_up: int = 0
    """Replicas below which it is too few."""
    needed_down: int = 0
    """Replicas above which it is too many."""
    allowed: int = 0
    """The least of all caps."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """So many replicas there shall be."""

    replicas: int
    previous: int
    reason: Reason
    limited_by: Limit | None = None
    adopted: bool = False
    """Somebody else changed the replicas since the last decision; that is where it goes on from."""
    numbers: Numbers = Numbers()

    @property
    def changed(self) -> bool:
        """Whether anything has to be written."""
        return self.replicas != self.previous
