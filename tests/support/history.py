"""What a row must be after each statement: the protocol once more, in a dozen lines of Python."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

from pgoutbox.outcome import Bury, DeferUntil, Finish, Release, Retry, Transition

if TYPE_CHECKING:
    from uuid import UUID

    import psycopg

LIMIT = 3
LATER = 3600.0
"""Seconds of a delay that does not end while a history runs."""

ROWS = b"""
SELECT id, message_id, status, lease_version, attempts, reclaims,
       CASE WHEN status = 'pending' THEN available_at <= now() END,
       CASE WHEN status = 'processing' THEN lease_until < now() END
  FROM outbox
 ORDER BY id
"""
DUE = b"""
SELECT id FROM outbox
 WHERE status = 'pending' AND ordering_key IS NULL AND available_at <= now()
 ORDER BY available_at, id
"""


class Seen(NamedTuple):
    """The columns of a row that the protocol speaks of."""

    message_id: UUID
    status: str
    version: int
    attempts: int
    reclaims: int
    due: bool | None
    """Of a pending row."""
    expired: bool | None
    """Of a processing row."""


@dataclass(frozen=True, slots=True)
class Expected:
    """One row of the model, and what its life was so far."""

    seen: Seen
    claims: int = 0
    """Since it was enqueued or requeued, as the next one."""
    refunds: int = 0

    def claimed(self) -> Expected:
        seen = self.seen
        again = seen.status == "processing"
        return replace(
            self,
            claims=self.claims + 1,
            seen=seen._replace(
                status="processing",
                version=seen.version + 1,
                attempts=seen.attempts + 1,
                reclaims=seen.reclaims + again,
                due=None,
                expired=False,
            ),
        )

    def finalized(self, transition: Transition) -> Expected:
        status, due = outcome_of(transition)
        refund = isinstance(transition, (DeferUntil, Release))
        return replace(
            self,
            refunds=self.refunds + refund,
            seen=self.seen._replace(
                status=status,
                attempts=self.seen.attempts - refund,
                reclaims=0,
                due=due,
                expired=None,
            ),
        )

    def renewed(self) -> Expected:
        return replace(self, seen=self.seen._replace(expired=False))

    def left_alone(self) -> Expected:
        """After its lease has run out, or its delay."""
        if self.seen.status == "processing":
            return replace(self, seen=self.seen._replace(expired=True))
        return replace(self, seen=self.seen._replace(due=True))

    def reaped(self) -> Expected:
        seen = self.seen._replace(status="dead", version=self.seen.version + 1, expired=None)
        return replace(self, seen=seen)

    def requeued(self) -> Expected:
        seen = self.seen._replace(
            status="pending", version=self.seen.version + 1, attempts=0, reclaims=0, due=True
        )
        return replace(self, seen=seen, claims=0, refunds=0)


def outcome_of(transition: Transition) -> tuple[str, bool | None]:
    """The status, and whether it is due again at once."""
    match transition:
        case Finish():
            return "done", None
        case Bury():
            return "dead", None
        case Retry(delay) | DeferUntil(delay) | Release(delay):
            return "pending", not delay


def read(conn: psycopg.Connection) -> dict[int, Seen]:
    """The whole table."""
    return {row_id: Seen(*columns) for row_id, *columns in conn.execute(ROWS)}
