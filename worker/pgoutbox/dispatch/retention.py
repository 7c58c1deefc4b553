"""What becomes of messages that were delivered long ago, and the days of the archive.

Every statement here may run in any worker and under any retention mode: what an earlier mode left
behind is cleared away as well. Dead messages are nobody's to clear away.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pgoutbox.database.retention import DAYS_AHEAD, MISSING

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

# Asked first, since everybody may ask, and not everybody may call what would be called in vain.
EXPIRED = b"""
SELECT count(*) FROM outbox_archive_partitions() WHERE until <= now() - %(keep)s::interval
"""

PREPARE = b"SELECT outbox_archive_prepare(%(ahead)s::integer)"
EXPIRE = b"SELECT outbox_archive_expire(%(keep)s::interval)"


async def prune(db: Database, *, keep: timedelta, limit: int) -> int | None:
    """Delete up to ``limit`` messages that were finished longer than ``keep`` ago; how many.

    None while another worker does so, which says nothing about what is left.
    """
    [(ours, count)] = await db.fetch(PRUNE, {"keep": keep, "limit": limit})
    return count if ours else None


async def archive_kept(db: Database, *, limit: int) -> int | None:
    """Move up to ``limit`` finished messages to the days of the archive that they belong to.

    How many it were; None as for `prune`. Those whose day the archive does not have stay where
    they are.
    """
    [(ours, count)] = await db.fetch(ARCHIVE_KEPT, {"limit": limit})
    return count if ours else None


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
