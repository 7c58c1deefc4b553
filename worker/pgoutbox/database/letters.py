"""Which dead letters are meant, what they are, and what becomes of all of them.

Each statement goes through outbox_dead, from where the last one ended. What the conditions leave
out is read all the same: the cost is that of the dead letters, never that of the table.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

from psycopg.rows import class_row

from pgoutbox.database.desk import begin
from pgoutbox.database.desk_writes import WRITES, Action, Letter

if TYPE_CHECKING:
    from collections.abc import Iterator
    from uuid import UUID

    import psycopg

DEFAULT_BATCH = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """What the letters have in common. None asks for nothing."""

    destination: str | None = None
    event_type: str | None = None
    error: str | None = None
    """A part of last_error, in any case."""
    older_than: str | None = None
    """An interval as PostgreSQL reads it ('2h', '3 days'): dead for longer than this."""
    newer_than: str | None = None
    """Dead for no longer than this."""
    died_after: str | None = None
    """A moment as PostgreSQL writes it: what died earlier is left out."""
    died_before: str | None = None
    """Likewise what died later."""

    def fixed(self, counted: Counted) -> Selection:
        """The same letters however long it takes to decide about them: ages become moments.

        What died after they were counted is left out, whatever was asked for.
        """
        return replace(
            self,
            older_than=None,
            newer_than=None,
            died_after=counted.since,
            died_before=counted.at,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Listed:
    """What is told of a dead letter in a list. ``dead_for`` is in seconds."""

    id: int
    message_id: UUID
    destination: str
    event_type: str
    ordering_key: str | None
    blocks: bool
    attempts: int
    dead_since: str
    dead_for: float
    last_error: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Counted:
    """How many there are, and between which moments they died."""

    letters: int
    at: str
    """For ``died_before``: never later than when they were counted."""
    since: str | None
    """For ``died_after``."""


_LONGER = b"SELECT set_config('statement_timeout', '60s', true)"

_COUNT = b"""
SELECT count(*)::integer AS letters,
       least(now(), %(died_before)s::timestamptz, now() - %(older_than)s::interval)::text AS at,
       greatest(%(died_after)s::timestamptz, now() - %(newer_than)s::interval)::text AS since
  FROM outbox
 WHERE status = 'dead'
   AND (%(destination)s::text IS NULL OR destination = %(destination)s)
   AND (%(event_type)s::text IS NULL OR event_type = %(event_type)s)
   AND (%(error)s::text IS NULL OR strpos(lower(last_error), lower(%(error)s)) > 0)
   AND (%(older_than)s::interval IS NULL OR available_at <= now() - %(older_than)s::interval)
   AND (%(newer_than)s::interval IS NULL OR available_at >= now() - %(newer_than)s::interval)
   AND (%(died_after)s::timestamptz IS NULL OR available_at >= %(died_after)s::timestamptz)
   AND (%(died_before)s::timestamptz IS NULL OR available_at <= %(died_before)s::timestamptz)
   AND (NOT %(blocking)s::boolean OR (ordering_key IS NOT NULL AND done_at IS NULL))
"""

_LIST = b"""
SELECT id, message_id, destination, event_type, ordering_key,
       ordering_key IS NOT NULL AND done_at IS NULL AS blocks, attempts,
       date_trunc('second', available_at)::text AS dead_since,
       greatest(extract(epoch FROM now() - available_at), 0)::float8 AS dead_for, last_error
  FROM outbox
 WHERE status = 'dead'
   AND (%(destination)s::text IS NULL OR destination = %(destination)s)
   AND (%(event_type)s::text IS NULL OR event_type = %(event_type)s)
   AND (%(error)s::text IS NULL OR strpos(lower(last_error), lower(%(error)s)) > 0)
   AND (%(older_than)s::interval IS NULL OR available_at <= now() - %(older_than)s::interval)
   AND (%(newer_than)s::interval IS NULL OR available_at >= now() - %(newer_than)s::interval)
   AND (%(died_after)s::timestamptz IS NULL OR available_at >= %(died_after)s::timestamptz)
   AND (%(died_before)s::timestamptz IS NULL OR available_at <= %(died_before)s::timestamptz)
   AND (NOT %(blocking)s::boolean OR (ordering_key IS NOT NULL AND done_at IS NULL))
 ORDER BY destination, id
 LIMIT %(limit)s
"""

# What somebody else has locked is that one's to decide about, so nobody waits and nothing is done
# twice. Under the lock the conditions are looked at again.
_CHOOSE = b"""
SELECT id, destination, ordering_key, done_at IS NOT NULL AS passed
  FROM outbox
 WHERE status = 'dead'
   AND (destination, id) > (%(after_destination)s, %(after_id)s)
   AND (%(destination)s::text IS NULL OR destination = %(destination)s)
   AND (%(event_type)s::text IS NULL OR event_type = %(event_type)s)
   AND (%(error)s::text IS NULL OR strpos(lower(last_error), lower(%(error)s)) > 0)
   AND (%(older_than)s::interval IS NULL OR available_at <= now() - %(older_than)s::interval)
   AND (%(newer_than)s::interval IS NULL OR available_at >= now() - %(newer_than)s::interval)
   AND (%(died_after)s::timestamptz IS NULL OR available_at >= %(died_after)s::timestamptz)
   AND (%(died_before)s::timestamptz IS NULL OR available_at <= %(died_before)s::timestamptz)
   AND (NOT %(blocking)s::boolean OR (ordering_key IS NOT NULL AND done_at IS NULL))
 ORDER BY destination, id
 LIMIT %(limit)s
   FOR UPDATE SKIP LOCKED
"""


def count(
    conn: psycopg.Connection[Any], selection: Selection, *, schema: str, action: Action | None
) -> Counted:
    """How many letters an action would be about; all that are dead where it is None.

    The connection must be outside a transaction. Raises psycopg.Error, InvalidDatetimeFormat among
    others for intervals and moments that are none; so do the others.
    """
    with conn.transaction():
        begin(conn, schema)
        conn.execute(_LONGER)
        cursor = conn.cursor(row_factory=class_row(Counted))
        [counted] = cursor.execute(_COUNT, _values(selection, action)).fetchall()
    return counted


def listed(
    conn: psycopg.Connection[Any],
    selection: Selection,
    *,
    schema: str,
    limit: int,
    action: Action | None = None,
) -> list[Listed]:
    """The first letters, by destination and then in the order in which they were enqueued."""
    with conn.transaction():
        begin(conn, schema)
        conn.execute(_LONGER)
        values = _values(selection, action) | {"limit": limit}
        return conn.cursor(row_factory=class_row(Listed)).execute(_LIST, values).fetchall()


def decide(
    conn: psycopg.Connection[Any],
    action: Action,
    reason: str,
    selection: Selection,
    *,
    schema: str,
    sizes: Iterator[int],
) -> Iterator[list[Letter]]:
    """Decide about all letters of a selection, some in each transaction. Yields what was committed.

    ``sizes`` says how many each time, and ends the work by ending. It goes from the first to the
    last until it finds nothing to do: what was locked by somebody else is looked at once more.
    Without ``died_before`` a message that dies again meanwhile would be decided about again.
    """
    did_something = True
    while did_something:
        did_something = False
        after = ("", 0)
        while True:
            size = next(sizes, 0)
            if not size:
                return
            chosen = _decide_some(conn, action, reason, selection, schema, after, size)
            if not chosen:
                break
            did_something = True
            after = (chosen[-1].destination, chosen[-1].id)
            yield chosen
            if len(chosen) < size:
                break


def _decide_some(  # noqa: PLR0913, PLR0917 - one transaction, and what it is about
    conn: psycopg.Connection[Any],
    action: Action,
    reason: str,
    selection: Selection,
    schema: str,
    after: tuple[str, int],
    size: int,
) -> list[Letter]:
    with conn.transaction():
        begin(conn, schema)
        conn.execute(_LONGER)
        place = {"after_destination": after[0], "after_id": after[1], "limit": size}
        cursor = conn.cursor(row_factory=class_row(Letter))
        chosen = cursor.execute(_CHOOSE, _values(selection, action) | place).fetchall()
        if chosen:
            WRITES[action](conn, chosen, reason)
    return chosen


def _values(selection: Selection, action: Action | None) -> dict[str, Any]:
    # Only what blocks its lane can be skipped.
    return asdict(selection) | {"blocking": action == "skip"}
