"""When a claim fails for something in the rows that it met: find a way round them.

One statement claims for all destinations, so a single row that cannot be claimed, for its payload
or for what a trigger thinks of it, would otherwise stop the whole worker.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import psycopg

from pgoutbox.database.pool import DATABASE_ERRORS
from pgoutbox.dispatch.claim import ClaimedBatch, claim
from pgoutbox.dispatch.finalize import clean
from pgoutbox.events import DatabaseFailed

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pgoutbox.database.pool import Database
    from pgoutbox.events import Event

# Not dead: the fault may be the trigger's and not the message's. No attempt is spent on what no
# publisher has seen, and the oldest pending age goes on counting. The same index as the claim.
POSTPONE = b"""
UPDATE outbox AS o
   SET available_at = now() + interval '1 minute', last_error = %(error)s
 WHERE o.id = ANY (ARRAY (
    SELECT p.id
      FROM outbox AS p
     WHERE p.destination = %(destination)s
       AND p.status = 'pending'
       AND p.ordering_key IS NULL
       AND p.available_at <= now()
     ORDER BY p.available_at, p.id
     LIMIT 1
       FOR UPDATE SKIP LOCKED))
RETURNING o.id
"""

# The head of the first lane behind the cursor, as in CLAIM_RUNS. Looked for without a lock: should
# somebody have locked it, the next one of its lane is not the head.
POSTPONE_HEAD = b"""
WITH head AS MATERIALIZED (
    SELECT o.id, o.ordering_key
      FROM outbox AS o
     WHERE o.destination = %(destination)s
       AND o.ordering_key > %(cursor)s
       AND o.ordering_key IS NOT NULL
       AND o.done_at IS NULL
     ORDER BY o.ordering_key, o.id
     LIMIT 1
), postponed AS (
    UPDATE outbox AS o
       SET available_at = now() + interval '1 minute', last_error = %(error)s
     WHERE o.id = ANY (ARRAY (
        SELECT p.id
          FROM outbox AS p
         WHERE p.id = (SELECT id FROM head)
           AND p.status = 'pending'
           AND p.available_at <= now()
           FOR UPDATE SKIP LOCKED))
)
SELECT ordering_key FROM head
"""

# Data, integrity, limits of the program, and what triggers raise: not the weather.
ABOUT_ROWS = frozenset({"22", "23", "54", "P0"})


def is_about_rows(error: Exception) -> bool:
    """Whether the statement failed for what it met, rather than for the state of the server."""
    sqlstate = error.sqlstate if isinstance(error, psycopg.Error) else None
    return sqlstate is not None and sqlstate[:2] in ABOUT_ROWS


async def claim_carefully(
    db: Database,
    *,
    owner: str,
    lease: float,
    slots: Mapping[str, int],
    emit: Callable[[Event], None],
) -> ClaimedBatch:
    """Destination by destination; where even one message fails, it is put off for a minute.

    Raises `DATABASE_ERRORS` only when nothing was claimed before.
    """
    brought = ClaimedBatch()
    for name, free in slots.items():
        try:
            brought += await _claim_one(db, owner, lease, name, free, emit)
        except DATABASE_ERRORS:
            if not brought:
                raise
            break
    return brought


async def _claim_one(
    db: Database, owner: str, lease: float, name: str, free: int, emit: Callable[[Event], None]
) -> ClaimedBatch:
    failed: Exception | None = None
    for count in (free, 1):
        try:
            return await claim(db, owner=owner, lease=lease, slots={name: count})
        except psycopg.Error as error:
            if not is_about_rows(error):
                raise
            failed = error
    emit(DatabaseFailed.because(f"claim a message of {name}", failed or RuntimeError()))
    why = clean(f"it cannot be claimed: {failed}")
    await db.fetch(POSTPONE, {"destination": name, "error": why})
    return ClaimedBatch()


async def postpone_head(db: Database, destination: str, cursor: str, error: Exception) -> str:
    """Put off, for a minute, the message at the head of the first lane behind ``cursor``.

    That lane's key; an empty string where there is none.
    """
    why = clean(f"it cannot be claimed: {error}")
    parameters = {"destination": destination, "cursor": cursor, "error": why}
    rows = await db.fetch(POSTPONE_HEAD, parameters)
    return rows[0][0] if rows else ""
