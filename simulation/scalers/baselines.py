"""What we are compared with, each in a world."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from simulation.scalers.hpa import SYNC_SECONDS, AverageValue, Hpa, Value
from simulation.scalers.keda import POLLING_SECONDS, Keda
from simulation.shape import OBJECTIVE, RATE

if TYPE_CHECKING:
    from simulation.shape import Shape
    from simulation.world import World


@dataclass(slots=True)
class Fixed:
    """A fleet that is large enough for the peak, always."""

    replicas: int
    name: str = "fixed at the peak"
    reads_heartbeats: bool = False

    def look(self, world: World) -> float:
        """Once."""
        world.fleet.scale(self.replicas)
        return float("inf")


class DepthScaler:
    """KEDA on the number of pending messages, ``seconds`` of one replica's work for each."""

    reads_heartbeats = False

    def __init__(self, shape: Shape, seconds: float, *, due_only: bool = False) -> None:
        self.name = f"KEDA, {seconds:g} s of work" + (" (due only)" if due_only else "")
        self._due_only = due_only
        self._keda = Keda(
            target=seconds * RATE, max_replicas=shape.max_replicas, min_replicas=shape.min_replicas
        )
        self._syncs = self._polls = 0.0

    def look(self, world: World) -> float:
        """The poll and the sync, each in its own interval."""
        now, fleet = world.clock.now, world.fleet
        value = None if world.database_away else float(world.noisy(self._depth(world)))
        if now >= self._polls:
            self._polls = now + POLLING_SECONDS
            fleet.scale(self._keda.poll(now, fleet.replicas, value))
        if now >= self._syncs:
            self._syncs = now + SYNC_SECONDS
            fleet.scale(self._keda.sync(now, fleet.replicas, len(fleet.ready), value))
        return min(self._polls, self._syncs)

    def _depth(self, world: World) -> int:
        return world.outbox.ready(set()) if self._due_only else world.outbox.pending()


class AgeScaler:
    """An HPA on the age of the oldest ready message, and perhaps on the depth as well."""

    reads_heartbeats = False

    def __init__(self, shape: Shape, *, depth_seconds: float | None = None) -> None:
        half = OBJECTIVE / 2
        self.name = f"HPA, age {half:g} s"
        depth: tuple[AverageValue, ...] = ()
        if depth_seconds is not None:
            self.name += f" or {depth_seconds:g} s of work"
            depth = (AverageValue(depth_seconds * RATE),)
        self._hpa = Hpa(
            metrics=(Value(half), *depth),
            max_replicas=shape.max_replicas,
            min_replicas=max(1, shape.min_replicas),
        )

    def look(self, world: World) -> float:
        """One sync."""
        now, fleet = world.clock.now, world.fleet
        values: tuple[float | None, ...] = (
            world.outbox.oldest_ready_age(now, set()),
            float(world.noisy(world.outbox.pending())),
        )
        if world.database_away:
            values = (None, None)
        seen = values[: len(self._hpa.metrics)]
        fleet.scale(self._hpa.sync(now, fleet.replicas, len(fleet.ready), seen))
        return now + SYNC_SECONDS
