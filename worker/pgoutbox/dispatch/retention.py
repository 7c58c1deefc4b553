"""What becomes of messages that were delivered long ago, and the days of the archive.

Every statement here may run in any worker and under any retention mode: what an earlier mode left
behind is cleared away as well. Dead messages are nobody's to clear away.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from pgoutbox.database.retention import DAYS_AHEAD, MISSING
from pgoutbox.dispatch.arrays import bigints

if TYPE_CHECKING:
    from datetime import timedelta

    from pgoutbox.database.pool import Database

# Index outbox_done. One worker at a time, by a lock that goes with the statement.
PRUNE = b"""
WITH turn AS MATERIALIZED (
    SELECT pg_try_advisory_xact_lock(7239162507031187526) AS ours
), pruned AS (
    DELETE FROM outbox
     WHERE id = ANY (ARRAY (
        SELECT o.id
          FROM outbox AS o
         WHERE (SELECT ours FROM turn)
           AND o.status = 'done'
           AND o.done_at < now() - %(keep)s::interval
           AND o.done_at >= %(past)s::timestamptz
           AND o.id <> ALL (%(held)s::bigint[])
         ORDER BY o.done_at
         LIMIT %(limit)s
           FOR UPDATE SKIP LOCKED))
    RETURNING id
)
SELECT ours, (SELECT count(*) FROM pruned) FROM turn
"""

# What was finished while its day had no partition, or by a worker with the mode keep. Index
# outbox_done, one range for each day that the archive has; under the same lock as PRUNE, which
# wants the same rows.
ARCHIVE_KEPT = b"""
WITH turn AS MATERIALIZED (
    SELECT pg_try_advisory_xact_lock(7239162507031187526) AS ours
), gone AS (
    DELETE FROM outbox
     WHERE id = ANY (ARRAY (
        SELECT kept.id
          FROM outbox_archive_partitions() AS day
         CROSS JOIN LATERAL (
            SELECT o.id
              FROM outbox AS o
             WHERE (SELECT ours FROM turn)
               AND o.status = 'done'
               AND o.done_at >= day.since
               AND o.done_at < day.until
               AND o.done_at >= %(past)s::timestamptz
               AND o.id <> ALL (%(held)s::bigint[])
             ORDER BY o.done_at
             LIMIT %(limit)s
               FOR UPDATE SKIP LOCKED) AS kept
         LIMIT %(limit)s))
    RETURNING *
), archived AS (
    INSERT INTO outbox_archive
                (id, created_at, available_at, done_at, attempts, message_id, destination,
                 ordering_key, aggregate_type, aggregate_id, event_type, content_type, dedup_key,
                 headers, payload, body)
    SELECT id, created_at, available_at, done_at, attempts, message_id, destination,
           ordering_key, aggregate_type, aggregate_id, event_type, content_type, dedup_key,
           headers, payload, body
      FROM gone
)
SELECT ours, (SELECT count(*) FROM gone) FROM turn
"""

# The first row that PRUNE would meet, and the first that ARCHIVE_KEPT would.
FIRST_OLD = b"""
SELECT o.id, o.done_at::text
  FROM outbox AS o
 WHERE o.status = 'done'
   AND o.done_at < now() - %(keep)s::interval
   AND o.done_at >= %(past)s::timestamptz
   AND o.id <> ALL (%(held)s::bigint[])
 ORDER BY o.done_at
 LIMIT 1
   FOR UPDATE SKIP LOCKED
"""
FIRST_KEPT = b"""
SELECT kept.id, kept.done_at::text
  FROM outbox_archive_partitions() AS day
 CROSS JOIN LATERAL (
    SELECT o.id, o.done_at
      FROM outbox AS o
     WHERE o.status = 'done'
       AND o.done_at >= day.since
       AND o.done_at < day.until
       AND o.done_at >= %(past)s::timestamptz
       AND o.id <> ALL (%(held)s::bigint[])
     ORDER BY o.done_at
     LIMIT 1
       FOR UPDATE SKIP LOCKED) AS kept
 LIMIT 1
"""

# Asked first, since everybody may ask, and not everybody may call what would be called in vain.
EXPIRED = b"""
SELECT count(*) FROM outbox_archive_partitions() WHERE until <= now() - %(keep)s::interval
"""

PREPARE = b"SELECT outbox_archive_prepare(%(ahead)s::integer)"
EXPIRE = b"SELECT outbox_archive_expire(%(keep)s::interval)"


class Beyond(NamedTuple):
    """What is left alone, because it cannot be deleted."""

    since: str = "-infinity"
    """All that was finished before."""
    ids: tuple[int, ...] = ()

    @property
    def parameters(self) -> dict[str, Any]:
        """For the statements."""
        return {"past": self.since, "held": bigints(self.ids)}


EVERYTHING = Beyond()


class First(NamedTuple):
    """A row, and when it was finished, as the server writes it."""

    id: int
    done_at: str


async def prune(
    db: Database, *, keep: timedelta, limit: int, beyond: Beyond = EVERYTHING
) -> int | None:
    """Delete up to ``limit`` messages that were finished longer than ``keep`` ago; how many.

    None while another worker does so, which says nothing about what is left. Raises
    `DATABASE_ERRORS`, also for a single row that something else refers to.
    """
    values = {"keep": keep, "limit": limit, **beyond.parameters}
    [(ours, count)] = await db.fetch(PRUNE, values)
    return count if ours else None


async def first_old(db: Database, *, keep: timedelta, beyond: Beyond) -> First | None:
    """The first one that `prune` would delete."""
    rows = await db.fetch(FIRST_OLD, {"keep": keep, **beyond.parameters})
    return First(*rows[0]) if rows else None


async def archive_kept(db: Database, *, limit: int, beyond: Beyond = EVERYTHING) -> int | None:
    """Move up to ``limit`` finished messages to the days of the archive that they belong to.

    How many it were; None, and what it raises, as for `prune`. Those whose day the archive does
    not have stay where they are.
    """
    [(ours, count)] = await db.fetch(ARCHIVE_KEPT, {"limit": limit, **beyond.parameters})
    return count if ours else None


async def first_kept(db: Database, *, beyond: Beyond) -> First | None:
    """The first one that `archive_kept` would move."""
    rows = await db.fetch(FIRST_KEPT, beyond.parameters)
    return First(*rows[0]) if rows else None


async def prepare_archive(db: Database) -> None:
    """Make the partitions of today and of the next days, unless they are there.

    Raises psycopg.Error where this role may not, or where the archive is locked.
    """
    [(missing,)] = await db.fetch(MISSING, {"ahead": DAYS_AHEAD})
    if missing:
        await db.fetch(PREPARE, {"ahead": DAYS_AHEAD})


async def expire_archive(db: Database, *, keep: timedelta) -> list[str]:
    """Drop the days of the archive that ended longer than ``keep`` ago; their partitions' names.

    Raises as `prepare_archive`.
    """
    [(expired,)] = await db.fetch(EXPIRED, {"keep": keep})
    dropped: list[str] = []
    for _ in range(expired):
        # Each in a transaction of its own: the archive is shut while one goes.
        [(name,)] = await db.fetch(EXPIRE, {"keep": keep})
        if name is None:
            break
        dropped.append(name)
    return dropped
