"""What happened, as frozen data. Metrics, traces and logs are observers of these.

The names and fields are public: a third-party observer may rely on them. Events that concern
messages come in batches, so that an observer costs per batch and not per message.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pgoutbox.message import ClaimedMessage
    from pgoutbox.outcome import Outcome, Transition


class Settled(NamedTuple):
    """One message whose publish has ended."""

    message: ClaimedMessage
    outcome: Outcome
    transition: Transition
    started: float
    """When its publish began, on this process's monotonic clock (seconds)."""
    seconds: float
    """How long the publish took."""


class Refused(NamedTuple):
    """One transition that the database would not write, and why."""

    settled: Settled
    error: str
    """The server's message and its SQLSTATE; no details, which may quote the payload."""


@dataclass(frozen=True, slots=True)
class WorkerStarted:
    """The worker is about to claim for the first time."""

    owner: str
    incarnation: str
    destinations: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class WakeupModeChanged:
    """``notify``: notifications arrive, polling is the net. ``poll``: polling only, and why."""

    mode: Literal["notify", "poll"]
    reason: str
    insisted: bool = False
    """The settings say ``notify``; that there are none is told again at each test."""


@dataclass(frozen=True, slots=True)
class Claimed:
    """One claim that brought something. ``reclaimed`` of them had an expired lease."""

    messages: Sequence[ClaimedMessage]
    reclaimed: int
    seconds: float


@dataclass(frozen=True, slots=True)
class Finalized:
    """One batch of transitions was answered by the database."""

    written: Sequence[Settled]
    lost: Sequence[Settled]
    """The row has a newer lease or was taken away: nothing was written."""
    already_written: Sequence[Settled]
    """Written by an earlier try of this finalize whose answer never arrived."""
    unknown: Sequence[Settled]
    """The row is gone; an earlier try may have been the one that finished it."""
    refused: Sequence[Refused]
    """The database refused these rows; each keeps its lease and is reclaimed later."""
    seconds: float


@dataclass(frozen=True, slots=True)
class Renewed:
    """One renewal of every lease in flight."""

    count: int
    seconds: float
    messages: Sequence[ClaimedMessage] = ()
    """Those whose lease lasts longer now."""


@dataclass(frozen=True, slots=True)
class LeaseLost:
    """A renewal found that these rows belong to somebody else; their publishes are cancelled."""

    messages: Sequence[ClaimedMessage]
    started: Sequence[float | None] = ()
    """When the publish of each began, on the monotonic clock; None where it had not."""


@dataclass(frozen=True, slots=True)
class LeaseUnconfirmed:
    """No renewal got through before the lease's end came near; these publishes are cancelled."""

    messages: Sequence[ClaimedMessage]


@dataclass(frozen=True, slots=True)
class Reaped:
    """Rows whose lease expired at the limit of attempts were buried."""

    destination_counts: dict[str, int]


@dataclass(frozen=True, slots=True)
class Pruned:
    """Finished rows past the retention were deleted."""

    count: int


@dataclass(frozen=True, slots=True)
class DatabaseFailed:
    """Something with the database failed and is tried again. ``doing`` says what."""

    doing: str
    error: str
    """On one line."""

    @classmethod
    def because(cls, doing: str, error: BaseException) -> DatabaseFailed:
        """From an exception; libpq writes its messages on several lines."""
        return cls(doing, "; ".join(line.strip() for line in str(error).splitlines()))


@dataclass(frozen=True, slots=True)
class DatabaseRecovered:
    """The first statement that worked after `DatabaseFailed`."""

    seconds: float


@dataclass(frozen=True, slots=True)
class PublisherFailed:
    """A publisher raised something unclassified, or ignored its cancellation: a bug."""

    message: ClaimedMessage
    error: BaseException


@dataclass(frozen=True, slots=True)
class DestinationStopped:
    """Nothing more is claimed for the destination by this worker."""

    destination: str
    reason: str


@dataclass(frozen=True, slots=True)
class BreakerChanged:
    """``open``: the destination fails for all and is left alone for a while. ``closed``: it works.

    Told once for a whole outage, whatever is tried meanwhile.
    """

    destination: str
    state: Literal["open", "closed"]
    error: str
    """What the last message met with; empty when it closes."""


@dataclass(frozen=True, slots=True)
class DrainStarted:
    """No further claim. ``reason`` is the signal's name, or what went wrong."""

    reason: str
    in_flight: int


@dataclass(frozen=True, slots=True)
class DrainEnded:
    """What became of the work that was in flight."""

    finished: int
    handed_back: int
    interrupted: int
    abandoned: int
    """Could not be written before the deadline: reclaimed when the lease expires."""
    seconds: float


Event = (
    WorkerStarted
    | WakeupModeChanged
    | Claimed
    | Finalized
    | Renewed
    | LeaseLost
    | LeaseUnconfirmed
    | Reaped
    | Pruned
    | DatabaseFailed
    | DatabaseRecovered
    | PublisherFailed
    | DestinationStopped
    | BreakerChanged
    | DrainStarted
    | DrainEnded
)


class Observer(Protocol):
    """A sink of events. Called on the event loop: quick, and never raises."""

    def on_event(self, event: Event) -> None:
        """Take note of the event."""
        ...
