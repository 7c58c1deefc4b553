"""Two closed sums: what publishing observed, and what the row should become.

They are two because they change for different reasons: a new kind of broker error, or a new
policy. `pgoutbox.dispatch.decide` maps the first to the second.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Published:
    """The destination took it."""


@dataclass(frozen=True, slots=True)
class RetryableFailure:
    """It may work later. ``retry_after`` in seconds, where the destination named a time."""

    error: str
    retry_after: float | None = None
    works_for_others: bool = True
    """False: the destination fails for all, so that this message is not to pay for it."""
    throttled: bool = False
    """The destination wants fewer messages, and has nothing against this one."""
    timed_out: bool = False
    """The worker cancelled the publish, since there was no answer within the publish timeout."""


@dataclass(frozen=True, slots=True)
class PermanentFailure:
    """It will never work. ``gone``: nor will any other, as the destination says."""

    error: str
    gone: bool = False


@dataclass(frozen=True, slots=True)
class Deferred:
    """The publisher asked to be called again after ``delay`` seconds."""

    delay: float
    reason: str


@dataclass(frozen=True, slots=True)
class Unavailable:
    """Nothing was sent. ``works_for_others``: the destination took other messages meanwhile."""

    error: str
    works_for_others: bool


@dataclass(frozen=True, slots=True)
class Interrupted:
    """The drain cancelled the publish; whether the destination has the message is unknown."""


@dataclass(frozen=True, slots=True)
class Unstarted:
    """Claimed, but its publish never began."""


Outcome = (
    Published
    | RetryableFailure
    | PermanentFailure
    | Deferred
    | Unavailable
    | Interrupted
    | Unstarted
)


@dataclass(frozen=True, slots=True)
class Finish:
    """-> done."""


@dataclass(frozen=True, slots=True)
class Retry:
    """-> pending after ``delay`` seconds; the attempt stays spent."""

    delay: float
    error: str


@dataclass(frozen=True, slots=True)
class DeferUntil:
    """-> pending after ``delay`` seconds; the attempt is refunded."""

    delay: float
    error: str


@dataclass(frozen=True, slots=True)
class Release:
    """-> pending; the attempt is refunded. Without a delay it keeps its place in the order."""

    delay: float | None = None
    error: str | None = None


@dataclass(frozen=True, slots=True)
class Bury:
    """-> dead, until a person requeues or discards it."""

    error: str
    skipped: bool = False
    """It leaves its lane, which goes on without it, instead of blocking it."""


Transition = Finish | Retry | DeferUntil | Release | Bury
