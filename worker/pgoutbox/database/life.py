"""All that is known about one message: its row, what its lane waits for, and who decided what.

A message id is in no index of the outbox, for that would cost every insert. What is dead or was
decided about is found at once; the rest is searched for, for as long as the caller allows.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal
from uuid import UUID

from psycopg import errors
from psycopg.rows import class_row, dict_row, scalar_row

from pgoutbox.database.desk import begin
from pgoutbox.errors import PgOutboxError

if TYPE_CHECKING:
    from collections.abc import Mapping

    import psycopg

AT_MOST = 10
"""Messages that are told about when several have the same message id."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A message as it is now. Moments as PostgreSQL writes them, to the second; ages in seconds."""

    id: int
    message_id: UUID
    destination: str
    event_type: str
    aggregate_type: str
    aggregate_id: str
    ordering_key: str | None
    dedup_key: str | None
    status: Literal["pending", "processing", "done", "dead", "archived"]
    attempts: int
    reclaims: int
    created_at: str
    created_age: float
    available_at: str
    due_in: float
    """Seconds until it may be claimed, below 0 when it may be. Of a dead one, since it died."""
    lease_owner: str | None = None
    lease_left: float | None = None
    lease_version: int = 0
    done_at: str | None = None
    last_error: str | None = None
    content_type: str
    headers: Mapping[str, str]
    payload: str | None
    """As text: it may be nested more deeply than Python reads."""
    body: bytes | None
    head: int | None = None
    """The first message of its lane that has not left it."""
    head_status: str | None = None

    @property
    def blocks(self) -> bool:
        """Whether others of its lane wait until a person decides about it."""
        return self.status == "dead" and self.ordering_key is not None and self.done_at is None


@dataclass(frozen=True, slots=True, kw_only=True)
class Decided:
    """A line of the audit."""

    at: str
    db_user: str
    action: str
    reason: str
    outbox_id: int
    message_id: UUID
    destination: str
    details: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Life:
    """One message. Without a row it is gone, and only the audit knows of it."""

    row: Row | None
    audit: list[Decided] = field(default_factory=list)


_BUDGET = b"SELECT set_config('statement_timeout', %(ms)s::text, true)"

_ROW = b"""
SELECT o.id, o.message_id, o.destination, o.event_type, o.aggregate_type, o.aggregate_id,
       o.ordering_key, o.dedup_key, o.status, o.attempts, o.reclaims,
       date_trunc('second', o.created_at)::text AS created_at,
       extract(epoch FROM now() - o.created_at)::float8 AS created_age,
       date_trunc('second', o.available_at)::text AS available_at,
       extract(epoch FROM o.available_at - now())::float8 AS due_in,
       o.lease_owner, extract(epoch FROM o.lease_until - now())::float8 AS lease_left,
       o.lease_version, date_trunc('second', o.done_at)::text AS done_at, o.last_error,
       o.content_type, o.headers, o.payload::text AS payload, o.body,
       head.id AS head, head.status AS head_status
  FROM outbox AS o
  LEFT JOIN LATERAL (
        SELECT first.id, first.status FROM outbox AS first
         WHERE first.destination = o.destination AND first.ordering_key = o.ordering_key
           AND first.ordering_key IS NOT NULL AND first.done_at IS NULL
         ORDER BY first.ordering_key, first.id
         LIMIT 1) AS head ON o.ordering_key IS NOT NULL
 WHERE o.id = %(id)s
"""

_ARCHIVED = b"""
SELECT id, message_id, destination, event_type, aggregate_type, aggregate_id, ordering_key,
       dedup_key, 'archived' AS status, attempts, 0 AS reclaims,
       date_trunc('second', created_at)::text AS created_at,
       extract(epoch FROM now() - created_at)::float8 AS created_age,
       date_trunc('second', available_at)::text AS available_at, 0::float8 AS due_in,
       date_trunc('second', done_at)::text AS done_at, content_type, headers,
       payload::text AS payload, body
  FROM outbox_archive
 WHERE CASE WHEN %(message_id)s::uuid IS NULL THEN id = %(id)s
            ELSE message_id = %(message_id)s::uuid END
 ORDER BY done_at
 LIMIT %(limit)s
"""

# By outbox_audit_message. An id in the outbox is in no index of the audit, which people write.
_AUDIT = b"""
SELECT date_trunc('second', at)::text AS at, db_user, action, reason, outbox_id, message_id,
       destination, details
  FROM outbox_audit
 WHERE message_id = %(message_id)s AND (outbox_id = %(id)s OR %(id)s IS NULL)
 ORDER BY id
"""
_AUDIT_OF_ID = b"""
SELECT date_trunc('second', at)::text AS at, db_user, action, reason, outbox_id, message_id,
       destination, details
  FROM outbox_audit
 WHERE outbox_id = %(id)s
 ORDER BY id
"""

# Over outbox_dead, and outbox_audit_message.
_KNOWN = b"""
SELECT id FROM outbox WHERE status = 'dead' AND message_id = %(message_id)s
UNION
SELECT o.id FROM outbox_audit AS a JOIN outbox AS o ON o.id = a.outbox_id
 WHERE a.message_id = %(message_id)s AND o.message_id = %(message_id)s
 ORDER BY 1 LIMIT %(limit)s
"""
_SEARCH = b"SELECT id FROM outbox WHERE message_id = %(message_id)s ORDER BY id LIMIT %(limit)s"


def lives(
    conn: psycopg.Connection[Any], named: int | UUID, *, schema: str, seconds: float
) -> list[Life]:
    """What is known of the messages with this id in the outbox, or this message id.

    None as a rule means that there never was one, or that it was delivered and removed. The
    connection must be outside a transaction. Raises PgOutboxError when a statement took longer
    than ``seconds``, psycopg.Error for all else.
    """
    try:
        with conn.transaction():
            begin(conn, schema)
            conn.execute(_BUDGET, {"ms": max(1, int(seconds * 1000))})
            if isinstance(named, UUID):
                return _of_message_id(conn, named)
            return _of_number(conn, named)
    except errors.QueryCanceled as error:
        raise PgOutboxError(
            f"{_searched(named)} within {seconds:g} seconds: --seconds allows more"
        ) from error


def _searched(named: int | UUID) -> str:
    if isinstance(named, UUID):
        return (
            f"{named} is not dead and nobody decided about it, and the other messages, which no"
            " index knows by message id (by their id in the outbox, which logs call outbox_ids,"
            " they are found at once), were not searched to the end"
        )
    return (
        f"message {named} is not in the outbox, and the audit and the archive were not searched to"
        " the end"
    )


def _of_number(conn: psycopg.Connection[Any], number: int) -> list[Life]:
    if row := _row(conn, number):
        return [Life(row=row, audit=_audit(conn, row))]
    audit = conn.cursor(row_factory=class_row(Decided)).execute(_AUDIT_OF_ID, {"id": number})
    decided = audit.fetchall()
    found = _archived(conn, number=number)
    if found:
        return [Life(row=row, audit=decided) for row in found]
    return [Life(row=None, audit=decided)] if decided else []


def _of_message_id(conn: psycopg.Connection[Any], message_id: UUID) -> list[Life]:
    values = {"message_id": message_id, "limit": AT_MOST}
    cursor = conn.cursor(row_factory=scalar_row)
    numbers = (
        cursor.execute(_KNOWN, values).fetchall() or cursor.execute(_SEARCH, values).fetchall()
    )
    rows = [row for number in numbers if (row := _row(conn, number))]
    rows = rows or _archived(conn, message_id=message_id)
    if rows:
        return [Life(row=row, audit=_audit(conn, row)) for row in rows]
    decided = _decided(conn, message_id, None)
    return [Life(row=None, audit=decided)] if decided else []


def _row(conn: psycopg.Connection[Any], number: int) -> Row | None:
    return conn.cursor(row_factory=class_row(Row)).execute(_ROW, {"id": number}).fetchone()


def _archived(
    conn: psycopg.Connection[Any], *, number: int | None = None, message_id: UUID | None = None
) -> list[Row]:
    values = {"id": number, "message_id": message_id, "limit": AT_MOST}
    with conn.cursor(row_factory=dict_row) as cursor:
        return [Row(**found) for found in cursor.execute(_ARCHIVED, values)]


def _audit(conn: psycopg.Connection[Any], row: Row) -> list[Decided]:
    return _decided(conn, row.message_id, row.id)


def _decided(conn: psycopg.Connection[Any], message_id: UUID, number: int | None) -> list[Decided]:
    values = {"message_id": message_id, "id": number}
    return conn.cursor(row_factory=class_row(Decided)).execute(_AUDIT, values).fetchall()
