"""What a person decides about a dead letter: with a reason, audited, and never behind a lease.

Each decision is one transaction that locks the row first, so of two people at once the second is
told what the first one did.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from psycopg import errors
from psycopg.rows import class_row

from pgoutbox.errors import PgOutboxError

if TYPE_CHECKING:
    from uuid import UUID

    import psycopg

# Whatever the role's defaults are: under another level, whoever waited for the first one's commit
# would get an error instead of what that one did.
_READ_COMMITTED = b"SET TRANSACTION ISOLATION LEVEL READ COMMITTED, READ WRITE"

# Inside the transaction, so that it also holds behind a pooler. A lock is waited for briefly:
# workers hold one for a statement, people for one such transaction.
_LOCAL_SETTINGS = b"""
SELECT set_config('search_path', quote_ident(%(schema)s) || ', pg_temp', true),
       set_config('lock_timeout', '5s', true), set_config('statement_timeout', '10s', true)
"""

_LOCK = b"""
SELECT id, message_id, destination, ordering_key, status, lease_owner,
       date_trunc('second', done_at)::text AS done_at
  FROM outbox WHERE id = %(id)s FOR UPDATE
"""

# Over outbox_dead: a message id is in no index of the outbox, and only dead ones are asked for.
_FIND = b"""
SELECT id, destination FROM outbox
 WHERE status = 'dead' AND message_id = %(message_id)s
 ORDER BY id LIMIT 10
"""

# Before the row is changed, so that it tells what the decision was about. Who decided is a default
# of the table, which a role need not be allowed to write.
_AUDIT = b"""
INSERT INTO outbox_audit (action, reason, outbox_id, message_id, destination, details)
SELECT %(action)s, %(reason)s, o.id, o.message_id, o.destination,
       jsonb_strip_nulls(jsonb_build_object(
           'ordering_key', o.ordering_key, 'out_of_order', %(out_of_order)s::boolean,
           'dead_since', o.available_at, 'attempts', o.attempts, 'last_error', o.last_error))
  FROM outbox AS o WHERE o.id = %(id)s
"""

_SKIP = b"UPDATE outbox SET done_at = now(), lease_version = lease_version + 1 WHERE id = %(id)s"

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

# The version goes up, so that a late owner can tell that the row is no longer its own. last_error
# stays: until the next attempt it is all that is known.
_REQUEUE = b"""
UPDATE outbox
   SET status = 'pending', attempts = 0, reclaims = 0, lease_version = lease_version + 1,
       pending_since = now(), available_at = now(), done_at = NULL,
       ordering_key = CASE WHEN %(out_of_order)s THEN NULL ELSE ordering_key END
 WHERE id = %(id)s
"""

# Delivered by the commit. Workers that do not listen find the row with their next poll.
_NOTIFY = b"SELECT pg_notify('outbox', %(destination)s)"


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """What became of it."""

    id: int | None
    """None where a message id did not lead to one row."""
    done: bool
    said: str
    """A sentence: what was done, or why nothing was."""
    message_id: UUID | None = None
    destination: str | None = None
    """None, as the message id, where there is no such row."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Row:
    """What is decided about, under its lock."""

    id: int
    message_id: UUID
    destination: str
    ordering_key: str | None
    status: Literal["pending", "processing", "done", "dead"]
    done_at: str | None
    lease_owner: str | None

    @property
    def lane(self) -> str:
        return f"the lane {self.ordering_key!r} of {self.destination}"

    def decided(self, said: str, *, done: bool) -> Decision:
        return Decision(
            id=self.id,
            done=done,
            said=said,
            message_id=self.message_id,
            destination=self.destination,
        )


def skip(conn: psycopg.Connection[Any], number: int, reason: str, *, schema: str) -> Decision:
    """Let the lane of a dead message go on without it. The message stays dead.

    ``number`` is its id in the outbox. The connection must be outside a transaction. Raises
    PgOutboxError while somebody else holds the row, psycopg.Error for all else.
    """
    with conn.transaction():
        row = _locked(conn, number, schema)
        if row is None:
            return _not_found(number)
        if row.status != "dead":
            return row.decided(_not_dead(row), done=False)
        if row.ordering_key is None:
            said = f"message {number} has no ordering key, so it holds nobody back"
            return row.decided(said, done=False)
        if row.done_at is not None:
            said = f"{row.lane} has gone on without message {number} since {row.done_at}"
            return row.decided(said, done=False)
        _audit(conn, "skip", number, reason)
        conn.execute(_SKIP, {"id": number})
        lane = {"destination": row.destination, "ordering_key": row.ordering_key}
        conn.execute(_WAKE, lane)
        conn.execute(_NOTIFY, {"destination": row.destination})
        return row.decided(f"{row.lane} goes on without message {number}", done=True)


def requeue(conn: psycopg.Connection[Any], number: int, reason: str, *, schema: str) -> Decision:
    """Deliver a dead message after all, with all its attempts and the same message id.

    One that blocks its lane keeps its place, before all that wait behind it. One that the lane
    went on without leaves the lane, and is audited as out of order. Otherwise as `skip`.
    """
    with conn.transaction():
        row = _locked(conn, number, schema)
        if row is None:
            return _not_found(number)
        if row.status != "dead":
            return row.decided(_not_dead(row), done=False)
        late = row.ordering_key is not None and row.done_at is not None
        _audit(conn, "requeue", number, reason, out_of_order=late)
        conn.execute(_REQUEUE, {"id": number, "out_of_order": late})
        conn.execute(_NOTIFY, {"destination": row.destination})
        return row.decided(_requeued(row, late=late), done=True)


def find(conn: psycopg.Connection[Any], message_id: UUID, *, schema: str) -> int | Decision:
    """The id in the outbox of the dead message with this message id, or why there is not one.

    Message ids are what consumers tell messages apart by, but nothing makes producers choose
    different ones. Otherwise as `skip`.
    """
    with conn.transaction():
        conn.execute(_LOCAL_SETTINGS, {"schema": schema})
        found = conn.execute(_FIND, {"message_id": message_id}).fetchall()
    if len(found) == 1:
        return int(found[0][0])
    if found:
        rows = ", ".join(f"{number} (to {destination})" for number, destination in found)
        said = f"more than one dead message has the message id {message_id}: choose from {rows}"
    else:
        said = (
            f"no dead message has the message id {message_id}: it is to be delivered, it was, or it"
            " never was"
        )
    return Decision(id=None, done=False, said=said, message_id=message_id)


def _locked(conn: psycopg.Connection[Any], number: int, schema: str) -> _Row | None:
    conn.execute(_READ_COMMITTED)
    conn.execute(_LOCAL_SETTINGS, {"schema": schema})
    try:
        return conn.cursor(row_factory=class_row(_Row)).execute(_LOCK, {"id": number}).fetchone()
    except errors.LockNotAvailable as error:
        raise PgOutboxError(
            f"message {number} has been locked by somebody else for 5 seconds, and nothing was"
            " done: try again"
        ) from error


def _audit(
    conn: psycopg.Connection[Any],
    action: Literal["skip", "requeue"],
    number: int,
    reason: str,
    *,
    out_of_order: bool | None = None,
) -> None:
    values = {"action": action, "reason": reason, "id": number, "out_of_order": out_of_order}
    conn.execute(_AUDIT, values)


def _not_found(number: int) -> Decision:
    said = f"there is no message {number}: it was delivered and removed, or it never was"
    return Decision(id=number, done=False, said=said)


def _not_dead(row: _Row) -> str:
    now = {
        "pending": "waits to be delivered",
        "processing": f"is being delivered by {row.lease_owner}",
        "done": "was delivered",
        "dead": "is dead",
    }
    return f"message {row.id} is not dead: it {now[row.status]}"


def _requeued(row: _Row, *, late: bool) -> str:
    said = f"message {row.id} will be delivered to {row.destination}"
    if late:
        return f"{said} out of order, since {row.lane} went on without it"
    if row.ordering_key is not None:
        return f"{said} before those that wait behind it in {row.lane}"
    return said
