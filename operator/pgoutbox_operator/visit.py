"""What one visit to an object found and did: the status, the metrics and `explain` tell it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pgoutbox_operator.crd import ConditionReason, ScalerSpec
    from pgoutbox_operator.permissions import Access
    from pgoutbox_operator.scaling import Decision, Outbox
    from pgoutbox_operator.target import Target


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """Why something is not as it should be."""

    reason: ConditionReason
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Visit:
    """What is not known is None."""

    generation: int
    spec: ScalerSpec | None = None
    target: Target | None = None
    outbox: Outbox | None = None
    dead: int | None = None
    sampled_at: float | None = None
    """Seconds since the epoch."""
    decision: Decision | None = None
    written: bool = False
    """The decision changed the target's replicas."""
    blocked: Finding | None = None
    """Why nothing was done at all."""
    blind: Finding | None = None
    """Why the outbox is not known, once that has been so for a while."""
    forbidden: tuple[Access, ...] = ()

    @property
    def replicas(self) -> int | None:
        """Those that the target asks for after the visit."""
        if self.written and self.decision is not None:
            return self.decision.replicas
        return None if self.target is None else self.target.scale.replicas
