"""What one decision is made from, beside the state."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pgoutbox_operator.scaling.policy import Policy
    from pgoutbox_operator.scaling.sample import Fleet, Outbox


@dataclass(frozen=True, slots=True, kw_only=True)
class Tick:
    """A sample that says something."""

    policy: Policy
    fleet: Fleet
    outbox: Outbox
    now: float

    @property
    def current(self) -> int:
        """Replicas that were asked for, whether they run yet or not."""
        return self.fleet.replicas

    @property
    def startup(self) -> float:
        """Seconds until a pod that is asked for now does something."""
        measured = self.fleet.startup
        return self.policy.startup if measured is None else measured
