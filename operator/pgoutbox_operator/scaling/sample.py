"""What one tick observes. Counts that reached the cap of the query mean "at least"."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Fleet:
    """The Deployment, as the cluster tells."""

    replicas: int
    """``spec.replicas``."""
    terminating: int = 0
    startup: float | None = None
    """Measured seconds from a pod's creation to its first heartbeat; None: not known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Worker:
    """One worker's last heartbeat. Its counters begin at 0 with the process."""

    incarnation: str
    seen_age: float
    """Seconds since the heartbeat, by the database's clock."""
    uptime: float
    """Seconds from the start of the process to the heartbeat."""
    slots: int
    running: bool = True
    """False: it drains."""
    finished: int
    """Messages that it published or buried."""
    attempts: int
    """Publishes that ended, but for failures while the destination's breaker was open: these are
    probes, and no news."""
    failed: int
    """Of these, those that failed and may work later, unreachable destinations included."""
    busy_seconds: float
    """The integral of its utilisation: what it held, over what it could hold at most."""
    serves: frozenset[str] = frozenset()
    """Destinations that it claims for."""
    opened: frozenset[str] = frozenset()
    """Of these, those whose breaker is open or half open."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outbox:
    """The outbox, as the database tells, from one snapshot."""

    at: float
    """Seconds by the database's clock; only differences between two samples count."""
    ready: int
    """Due, claimable, and of no destination whose breaker is open."""
    oldest_ready_age: float
    """Since when the oldest of these is due: a backoff is no age."""
    undelivered: int
    """Everything that still has to be delivered, of all destinations."""
    scheduled: int = 0
    """Of these, those that are not due yet."""
    next_due_in: float | None = None
    """Seconds until the first of these is due; None: not known, or nothing is scheduled."""
    lanes: int | None = None
    """How many messages could be published at the same time, where each ready one is in a lane;
    None where some are in none, or where it is not known."""
    capped: bool = False
    """Whether some count reached its cap."""
    workers: tuple[Worker, ...] = ()

    @property
    def has_due(self) -> bool:
        """Whether something is owed now.

        What is behind an open breaker counts: somebody has to find out that it closed.
        """
        return self.undelivered > self.scheduled


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """Both looks. ``outbox`` is None where the database did not answer."""

    fleet: Fleet
    outbox: Outbox | None
    age: float = 0.0
    """Seconds since the outbox was looked at."""
