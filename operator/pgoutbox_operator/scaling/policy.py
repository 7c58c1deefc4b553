"""What a user asks for, and the law's own constants. Durations in seconds, shares in [0, 1]."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, TypeAlias

Paused: TypeAlias = Literal["None", "ScaleIn", "ScaleOut", "All"]
Backpressure: TypeAlias = Literal["MatchThroughput", "Hold", "Ignore"]
Behavior: TypeAlias = Literal["Hold", "AtLeast", "Static"]

STALE_SECONDS = 45.0
"""Three ticks and four heartbeats: one that is missing, and a slow look, make nothing unknown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """Database connections that the fleet may take."""

    total: int
    per_replica: int
    reserved: int = 0
    surge: int = 0
    """Pods that a rollout adds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fallback:
    """What to do when nothing has been known of the outbox for ``after`` seconds."""

    behavior: Behavior = "Hold"
    replicas: int = 1
    after: float = 300.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """One scaler's wishes."""

    max_replicas: int
    min_replicas: int = 1
    objective: float = 30.0
    """No message should become older than this."""
    utilization: float = 0.90
    """Of the replicas that arrivals alone need."""
    hysteresis: float = 0.15
    """As many points of utilisation lower before a replica is taken away."""
    seed_rate: float | None = None
    """Messages a second of one replica, before anything is measured."""
    startup: float = 20.0
    """From a pod's creation to its first message."""
    tick: float = 15.0
    tick_at_zero: float = 5.0
    up_factor: float = 2.0
    up_pods: int = 4
    down_share: float = 0.5
    down_period: float = 60.0
    window: float = 120.0
    """A replica is taken away when it has not been needed for so long."""
    idle: float = 300.0
    """To zero after so long with nothing to do."""
    activation: int | None = None
    """Replicas that a start from zero brings at most; None: as many as are needed."""
    paused: Paused = "None"
    backpressure: Backpressure = "MatchThroughput"
    knee: bool = True
    """Whether to try fewer replicas where more get nothing more through."""
    failing: float = 0.10
    """This share of failed attempts says that the destinations take no more."""
    recovered: float = 0.02
    stale: float = STALE_SECONDS
    """A sample, or a worker's heartbeat, that is older than this says nothing."""
    budget: Budget | None = None
    fallback: Fallback = field(default_factory=Fallback)

    def next_tick(self, replicas: int) -> float:
        """Seconds until the next decision: sooner where there is nobody to do the work."""
        return self.tick if replicas else self.tick_at_zero
