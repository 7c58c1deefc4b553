"""What the law remembers from one tick to the next. Frozen, and made of plain JSON values."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, slots=True, kw_only=True)
class Beat:
    """A worker's last heartbeat, and the rates between it and the one before."""

    incarnation: str
    at: float
    """By the database's clock."""
    finished: int
    attempts: int
    failed: int
    busy_seconds: float
    finished_rate: float = 0.0
    attempts_rate: float = 0.0
    failed_rate: float = 0.0
    busy_rate: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Recommendation:
    """So many replicas were enough at that time."""

    at: float
    replicas: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Knee:
    """Whether more replicas get more through, as far as is known."""

    replicas: int = 0
    """With which the fleet runs, since ``since``."""
    since: float = 0.0
    saturated_since: float = 0.0
    backlog: int = 0
    """When it became saturated."""
    age: float = 0.0
    """Of the oldest ready message, then."""
    mean: float = 0.0
    """Throughput with these replicas, fully used, over ``count`` ticks."""
    count: int = 0
    before: int | None = None
    """Replicas before the trial that is under way; None: there is none."""
    before_mean: float = 0.0
    proven: bool = False
    """Those before got as much through as still more of them had."""
    cap: int | None = None
    cap_until: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """Begin with ``State()``. Instants are those given to `decide`, but for ``sampled_at``."""

    at: float | None = None
    """Of the last decision; None: there was none."""
    since: float = 0.0
    """Of the first decision, or of the first after a time in which nothing was known."""
    wanted: int | None = None
    """What the last decision asked for."""
    known_at: float = 0.0
    """When the outbox was last known."""
    sampled_at: float | None = None
    """The same, by the database's clock."""
    undelivered: int = 0
    capped: bool = False
    beats: tuple[Beat, ...] = ()
    arrivals: float | None = None
    """A second, smoothed; None while nothing is known."""
    rate: float | None = None
    """Messages a second of one replica that is fully used."""
    full: float = 1.0
    """What workers say of their utilisation when there is no room left."""
    limited: bool = False
    limited_at: float = 0.0
    step: int = 1
    """Replicas that the next step of the recovery adds."""
    stepped_at: float = 0.0
    knee: Knee = field(default_factory=Knee)
    recommendations: tuple[Recommendation, ...] = ()
    down_at: float | None = None
    """When replicas were last taken away."""
    idle_since: float | None = None

    def unwritten(self, before: State, replicas: int) -> State:
        """The decision was not carried out: there are still ``replicas``, and no step was taken."""
        stepped = self.step > before.step
        return replace(
            self,
            wanted=replicas,
            down_at=before.down_at,
            step=before.step if stepped else self.step,
            stepped_at=before.stepped_at if stepped else self.stepped_at,
        )

    def to_json(self) -> dict[str, Any]:
        """Plain values, for a status field or a file."""
        return asdict(self)

    @classmethod
    def from_json(cls, stored: Mapping[str, Any]) -> State:
        """What `to_json` made. Raises TypeError for anything else."""
        values = dict(stored)
        values["beats"] = tuple(Beat(**beat) for beat in stored.get("beats", ()))
        values["recommendations"] = tuple(
            Recommendation(**told) for told in stored.get("recommendations", ())
        )
        values["knee"] = Knee(**stored.get("knee", {}))
        return cls(**values)
