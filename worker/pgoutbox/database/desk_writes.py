"""What a decision writes, for one dead message or for many: the audit first, then the rows.

Whoever calls has locked the rows within the same transaction and seen that they are dead.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from psycopg.rows import scalar_row

from pgoutbox.errors import PgOutboxError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import psycopg

Action = Literal["requeue", "skip", "discard"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Letter:
    """A dead message, under its lock."""

    id: int
    destination: str
    ordering_key: str | None
    passed: bool
    """Whether its lane has gone on without it. Without an ordering key it means nothing."""

    @property
    def blocks(self) -> bool:
        """Whether others of its lane wait until something is decided about it."""
        return self.ordering_key is not None and not self.passed

    @property
    def late(self) -> bool:
        """Whether delivering it after all is out of order."""
        return self.ordering_key is not None and self.passed


# Before the rows are changed, so that it tells what the decision was about. Who decided is a
# default of the table, which a role need not be allowed to write.
_AUDIT = b"""
INSERT INTO outbox_audit (action, reason, outbox_id, message_id, destination, details)
SELECT %(action)s, %(reason)s, o.id, o.message_id, o.destination,
       jsonb_strip_nulls(jsonb_build_object(
           'ordering_key', o.ordering_key,
           'out_of_order', CASE WHEN %(action)s = 'requeue'
                                THEN o.ordering_key IS NOT NULL AND o.done_at IS NOT NULL END,
           'dead_since', o.available_at, 'attempts', o.attempts, 'last_error', o.last_error))
  FROM outbox AS o
 WHERE o.id = ANY (%(ids)s)
 ORDER BY o.id
"""

# The version goes up, so that a late owner can tell that the row is no longer its own. last_error
# stays: until the next attempt it is all that is known. What its lane went on without leaves it.
_REQUEUE = b"""
UPDATE outbox
   SET status = 'pending', attempts = 0, reclaims = 0, lease_version = lease_version + 1,
       pending_since = now(), available_at = now(), done_at = NULL,
       ordering_key = CASE WHEN done_at IS NULL THEN ordering_key END
 WHERE id = ANY (%(ids)s) AND status = 'dead'
"""

_SKIP = b"""
UPDATE outbox
   SET done_at = now(), lease_version = lease_version + 1
 WHERE id = ANY (%(ids)s) AND status = 'dead' AND done_at IS NULL
"""

# The only way to delete what is dead: the function audits it, and lets the lanes go on.
_DISCARD = b"SELECT outbox_discard(%(ids)s, %(reason)s)"

# What waited behind it may be due for long, and workers look everywhere only now and then. As if it
# had just become due it is found at once. Nobody has claimed it yet: whoever is about to may go on.
_WAKE = b"""
UPDATE outbox AS o
   SET available_at = now()
 WHERE o.id = ANY (ARRAY (
    SELECT p.id
      FROM outbox AS p
     WHERE p.id = (
        SELECT head.id
          FROM outbox AS head
         WHERE head.destination = %(destination)s
           AND head.ordering_key = %(ordering_key)s
           AND head.ordering_key IS NOT NULL
           AND head.done_at IS NULL
         ORDER BY head.ordering_key, head.id
         LIMIT 1)
       AND p.status = 'pending'
       AND p.available_at <= now()
       FOR UPDATE SKIP LOCKED))
"""

# Delivered by the commit. Workers that do not listen find the row with their next poll.
_NOTIFY = b"SELECT pg_notify('outbox', %(destination)s)"


def requeue(conn: psycopg.Connection[Any], letters: Sequence[Letter], reason: str) -> None:
    """Deliver them after all, with all their attempts and the same message ids.

    Raises PgOutboxError, as the others do, when not all of them are as they were under the lock.
    """
    ids = _audited(conn, "requeue", letters, reason)
    _all_of(letters, conn.execute(_REQUEUE, {"ids": ids}).rowcount)
    _notify(conn, letters)


def skip(conn: psycopg.Connection[Any], letters: Sequence[Letter], reason: str) -> None:
    """Let the lanes that they block go on. They stay dead."""
    ids = _audited(conn, "skip", letters, reason)
    _all_of(letters, conn.execute(_SKIP, {"ids": ids}).rowcount)
    for letter in letters:
        lane = {"destination": letter.destination, "ordering_key": letter.ordering_key}
        conn.execute(_WAKE, lane)
    _notify(conn, letters)


def discard(conn: psycopg.Connection[Any], letters: Sequence[Letter], reason: str) -> None:
    """Delete them. The lanes that they block go on."""
    values = {"ids": [letter.id for letter in letters], "reason": reason}
    gone = conn.cursor(row_factory=scalar_row).execute(_DISCARD, values).fetchall()
    _all_of(letters, len(gone))
    _notify(conn, [letter for letter in letters if letter.blocks])


WRITES: dict[Action, Callable[[psycopg.Connection[Any], Sequence[Letter], str], None]] = {
    "requeue": requeue,
    "skip": skip,
    "discard": discard,
}


def _audited(
    conn: psycopg.Connection[Any], action: Action, letters: Sequence[Letter], reason: str
) -> list[int]:
    ids = [letter.id for letter in letters]
    conn.execute(_AUDIT, {"action": action, "reason": reason, "ids": ids})
    return ids


def _notify(conn: psycopg.Connection[Any], letters: Sequence[Letter]) -> None:
    for destination in sorted({letter.destination for letter in letters}):
        conn.execute(_NOTIFY, {"destination": destination})


def _all_of(letters: Sequence[Letter], written: int) -> None:
    if written != len(letters):
        raise PgOutboxError(
            f"{len(letters) - written} of {len(letters)} messages changed under their lock, and"
            " nothing was done: try again"
        )
