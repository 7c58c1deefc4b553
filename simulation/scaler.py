"""What a world asks of whoever decides about the replicas."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from simulation.world import World


class Scaler(Protocol):
    """Whoever decides about the replicas."""

    @property
    def name(self) -> str:
        """For the table."""

    @property
    def reads_heartbeats(self) -> bool:
        """Whether workers have to write any."""

    def look(self, world: World) -> float:
        """Observe, perhaps `World.scale`, and say when to look again."""
