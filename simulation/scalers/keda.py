"""KEDA's PostgreSQL scaler: from 0 to 1 and back itself, everything else through an HPA."""

from __future__ import annotations

from dataclasses import dataclass, field

from simulation.scalers.hpa import AverageValue, Hpa

POLLING_SECONDS = 30.0
COOLDOWN_SECONDS = 300.0


@dataclass(slots=True, kw_only=True)
class Keda:
    """One ScaledObject with its defaults and no ``fallback``."""

    target: float
    max_replicas: int
    min_replicas: int = 1
    activation: float = 0.0
    _hpa: Hpa = field(init=False)
    _active_at: float = field(default=0.0, init=False)

    def __post_init__(self) -> None:
        self._hpa = Hpa(
            metrics=(AverageValue(self.target),),
            # The HPA has no zero here: that is KEDA's part.
            min_replicas=max(1, self.min_replicas),
            max_replicas=self.max_replicas,
        )

    def poll(self, now: float, replicas: int, value: float | None) -> int:
        """Every polling interval: between none and one. None: the query failed."""
        if self.min_replicas or value is None:
            return replicas
        if value > self.activation:
            self._active_at = now
            return replicas or 1
        idle = now - self._active_at >= COOLDOWN_SECONDS
        return 0 if replicas and idle else replicas

    def sync(self, now: float, replicas: int, ready: int, value: float | None) -> int:
        """Every sync of the HPA's controller, which asks KEDA, which asks the database."""
        return self._hpa.sync(now, replicas, ready, (value,))
