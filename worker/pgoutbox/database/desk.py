"""What a person decides about a dead letter: with a reason, audited, and never behind a lease.

Each decision is one transaction that locks the row first, so of two people at once the second is
told what the first one did.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from psycopg import errors
from psycopg.rows import class_row

from pgoutbox.database import desk_writes
from pgoutbox.database.desk_writes import Letter
from pgoutbox.errors import PgOutboxError

if TYPE_CHECKING:
    from uuid import UUID

    import psycopg

# Whatever the role's defaults are: under another level, whoever waited for the first one's commit
# would get an error instead of what that one did.
_READ_COMMITTED = b"SET TRANSACTION ISOLATION LEVEL READ COMMITTED, READ WRITE"

# Inside the transaction, so that it also holds behind a pooler. A lock is waited for briefly:
# workers hold one for a statement, people for one such transaction. Moments are told in a style
# that means the same in the next session: others name time zones in ways that are ambiguous.
_LOCAL_SETTINGS = b"""
SELECT set_config('search_path', quote_ident(%(schema)s) || ', pg_temp', true),
       set_config('lock_timeout', '5s', true), set_config('statement_timeout', '10s', true),
       set_config('datestyle', 'ISO, MDY', true)
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

    @property
    def letter(self) -> Letter:
        return Letter(
            id=self.id,
            destination=self.destination,
            ordering_key=self.ordering_key,
            passed=self.done_at is not None,
        )

    def decided(self, said: str, *, done: bool) -> Decision:
        return Decision(
            id=self.id,
            done=done,
            said=said,
            message_id=self.message_id,
            destination=self.destination,
        )


def begin(conn: psycopg.Connection[Any], schema: str) -> None:
    """What every transaction of the desk starts with."""
    conn.execute(_READ_COMMITTED)
    conn.execute(_LOCAL_SETTINGS, {"schema": schema})


def skip(
    conn: psycopg.Connection[Any],
    number: int,
    reason: str,
    *,
    schema: str,
    dry_run: bool = False,
) -> Decision:
    """Let the lane of a dead message go on without it. The message stays dead.

    ``number`` is its id in the outbox. The connection must be outside a transaction. ``dry_run``
    writes nothing and says the same. Raises PgOutboxError while somebody else holds the row,
    psycopg.Error for all else.
    """
    with conn.transaction(force_rollback=dry_run):
        row = _locked(conn, number, schema)
        if isinstance(row, Decision):
            return row
        if row.ordering_key is None:
            said = f"message {number} has no ordering key, so it holds nobody back"
            return row.decided(said, done=False)
        if row.done_at is not None:
            said = f"{row.lane} has gone on without message {number} since {row.done_at}"
            return row.decided(said, done=False)
        desk_writes.skip(conn, [row.letter], reason)
        return row.decided(f"{row.lane} goes on without message {number}", done=True)


def requeue(
    conn: psycopg.Connection[Any],
    number: int,
    reason: str,
    *,
    schema: str,
    dry_run: bool = False,
) -> Decision:
    """Deliver a dead message after all, with all its attempts and the same message id.

    One that blocks its lane keeps its place, before all that wait behind it. One that the lane
    went on without leaves the lane, and is audited as out of order. Otherwise as `skip`.
    """
    with conn.transaction(force_rollback=dry_run):
        row = _locked(conn, number, schema)
        if isinstance(row, Decision):
            return row
        desk_writes.requeue(conn, [row.letter], reason)
        return row.decided(_requeued(row), done=True)


def discard(
    conn: psycopg.Connection[Any],
    number: int,
    reason: str,
    *,
    schema: str,
    dry_run: bool = False,
) -> Decision:
    """Delete a dead message for good. What it was about stays in the audit. Otherwise as `skip`."""
    with conn.transaction(force_rollback=dry_run):
        row = _locked(conn, number, schema)
        if isinstance(row, Decision):
            return row
        desk_writes.discard(conn, [row.letter], reason)
        said = f"message {number} to {row.destination} is discarded"
        if row.letter.blocks:
            said += f", and {row.lane} goes on without it"
        return row.decided(said, done=True)


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


def _locked(conn: psycopg.Connection[Any], number: int, schema: str) -> _Row | Decision:
    """The row, which is dead and stays so until the commit, or why there is nothing to decide."""
    begin(conn, schema)
    try:
        row = conn.cursor(row_factory=class_row(_Row)).execute(_LOCK, {"id": number}).fetchone()
    except errors.LockNotAvailable as error:
        raise PgOutboxError(
            f"message {number} has been locked by somebody else for 5 seconds, and nothing was"
            " done: try again"
        ) from error
    if row is None:
        return _not_found(number)
    return row if row.status == "dead" else row.decided(_not_dead(row), done=False)


def _not_found(number: int) -> Decision:
    said = (
        f"there is no message {number}: it was discarded, it was delivered and removed, or it never"
        " was"
    )
    return Decision(id=number, done=False, said=said)


def _not_dead(row: _Row) -> str:
    now = {
        "pending": "waits to be delivered",
        "processing": f"is being delivered by {row.lease_owner}",
        "done": "was delivered",
        "dead": "is dead",
    }
    return f"message {row.id} is not dead: it {now[row.status]}"


def _requeued(row: _Row) -> str:
    said = f"message {row.id} will be delivered to {row.destination}"
    if row.letter.late:
        return f"{said} out of order, since {row.lane} went on without it"
    if row.ordering_key is not None:
        return f"{said} before those that wait behind it in {row.lane}"
    return said
