"""How a batch of transitions is written, one statement for each retention mode.

They differ in what becomes of a message that is done: it stays, it goes, or it goes to the archive.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Mapping

Mode: TypeAlias = Literal["keep", "delete", "archive"]

# Rows are locked one by one in id order (as every statement over several rows does, so none of
# them can deadlock) by a lateral probe of the primary key, which no statistics can turn into a
# quadratic join. A row that is locked by a renewal or a reclaim is waited for and then checked
# again: the fence is evaluated on its newest version. Stepping over it would be no quicker, for
# these hold a row for milliseconds, and would leave open whether the lease is lost. Whoever holds
# one for longer, such as a person with an open transaction, fails the statement: its patience is
# set where it ends with the statement, before the first row is locked.
KEEP = b"""
WITH decided AS MATERIALIZED (
    SELECT *
      FROM unnest(%(ids)s::bigint[], %(versions)s::bigint[], %(statuses)s::text[],
                  %(delays)s::float8[], %(refunds)s::integer[], %(errors)s::text[],
                  %(skips)s::boolean[])
           AS d (id, version, status, delay, refund, error, skipped)
     WHERE (SELECT set_config('lock_timeout', %(patience)s, true)) IS NOT NULL
), held AS MATERIALIZED (
    SELECT fenced.id
      FROM (SELECT id, version FROM decided ORDER BY id) AS d
     CROSS JOIN LATERAL (
        SELECT o.id
          FROM outbox AS o
         WHERE o.id = d.id
           AND o.lease_version = d.version
           AND o.status = 'processing'
           FOR UPDATE) AS fenced
)
UPDATE outbox AS o
   SET status        = d.status,
       lease_owner   = NULL,
       lease_until   = NULL,
       reclaims      = 0,
       attempts      = o.attempts - d.refund,
       last_error    = CASE WHEN d.status <> 'done' THEN coalesce(d.error, o.last_error) END,
       available_at  = coalesce(now() + d.delay * interval '1 second', o.available_at),
       pending_since = CASE WHEN d.status = 'pending' THEN o.pending_since END,
       done_at       = CASE WHEN d.status = 'done'
                              OR d.status = 'dead' AND (o.ordering_key IS NULL OR d.skipped)
                            THEN now() END
  FROM decided AS d
 WHERE o.id = ANY (ARRAY (SELECT id FROM held))
   AND d.id = o.id
   AND d.version = o.lease_version
RETURNING o.id, o.lease_version
"""

# The fence has been passed once a row is in held, and nobody can touch it after that: so what is
# done is deleted by id alone. No row is both deleted and updated, in which case the server would
# pick one of the two.
DELETE = b"""
WITH decided AS MATERIALIZED (
    SELECT *
      FROM unnest(%(ids)s::bigint[], %(versions)s::bigint[], %(statuses)s::text[],
                  %(delays)s::float8[], %(refunds)s::integer[], %(errors)s::text[],
                  %(skips)s::boolean[])
           AS d (id, version, status, delay, refund, error, skipped)
     WHERE (SELECT set_config('lock_timeout', %(patience)s, true)) IS NOT NULL
), held AS MATERIALIZED (
    SELECT fenced.id, d.status = 'done' AS leaves
      FROM (SELECT id, version, status FROM decided ORDER BY id) AS d
     CROSS JOIN LATERAL (
        SELECT o.id
          FROM outbox AS o
         WHERE o.id = d.id
           AND o.lease_version = d.version
           AND o.status = 'processing'
           FOR UPDATE) AS fenced
), gone AS (
    DELETE FROM outbox AS o
     WHERE o.id = ANY (ARRAY (SELECT id FROM held WHERE leaves))
    RETURNING o.id, o.lease_version
), stays AS (
    UPDATE outbox AS o
       SET status        = d.status,
           lease_owner   = NULL,
           lease_until   = NULL,
           reclaims      = 0,
           attempts      = o.attempts - d.refund,
           last_error    = coalesce(d.error, o.last_error),
           available_at  = coalesce(now() + d.delay * interval '1 second', o.available_at),
           pending_since = CASE WHEN d.status = 'pending' THEN o.pending_since END,
           done_at       = CASE WHEN d.status = 'dead' AND (o.ordering_key IS NULL OR d.skipped)
                                THEN now() END
      FROM decided AS d
     WHERE o.id = ANY (ARRAY (SELECT id FROM held WHERE NOT leaves))
       AND d.id = o.id
       AND d.version = o.lease_version
    RETURNING o.id, o.lease_version
)
SELECT id, lease_version FROM gone
 UNION ALL
SELECT id, lease_version FROM stays
"""

# As DELETE, and what goes arrives in the partition of today. Without one (nobody may make it, or
# the clock is ahead) it stays in the outbox, as under the mode keep, until the sweep can take it
# there: no finalize fails for it. Days are those of UTC, whatever the session's time zone.
ARCHIVE = b"""
WITH decided AS MATERIALIZED (
    SELECT *
      FROM unnest(%(ids)s::bigint[], %(versions)s::bigint[], %(statuses)s::text[],
                  %(delays)s::float8[], %(refunds)s::integer[], %(errors)s::text[],
                  %(skips)s::boolean[])
           AS d (id, version, status, delay, refund, error, skipped)
     WHERE (SELECT set_config('lock_timeout', %(patience)s, true)) IS NOT NULL
), archive AS MATERIALIZED (
    SELECT EXISTS (
        SELECT
          FROM pg_inherits AS i
         WHERE i.inhparent = 'outbox_archive'::regclass
           AND i.inhrelid = (SELECT to_regclass(
                   'outbox_archive_' || to_char(now() AT TIME ZONE 'UTC', 'YYYYMMDD')))
           AND NOT i.inhdetachpending) AS is_open
), held AS MATERIALIZED (
    SELECT fenced.id, d.status = 'done' AND (SELECT is_open FROM archive) AS leaves
      FROM (SELECT id, version, status FROM decided ORDER BY id) AS d
     CROSS JOIN LATERAL (
        SELECT o.id
          FROM outbox AS o
         WHERE o.id = d.id
           AND o.lease_version = d.version
           AND o.status = 'processing'
           FOR UPDATE) AS fenced
), gone AS (
    DELETE FROM outbox AS o
     WHERE o.id = ANY (ARRAY (SELECT id FROM held WHERE leaves))
    RETURNING o.*
), archived AS (
    INSERT INTO outbox_archive
                (id, created_at, available_at, done_at, attempts, message_id, destination,
                 ordering_key, aggregate_type, aggregate_id, event_type, content_type, dedup_key,
                 headers, payload, body)
    SELECT id, created_at, available_at, now(), attempts, message_id, destination,
           ordering_key, aggregate_type, aggregate_id, event_type, content_type, dedup_key,
           headers, payload, body
      FROM gone
), stays AS (
    UPDATE outbox AS o
       SET status        = d.status,
           lease_owner   = NULL,
           lease_until   = NULL,
           reclaims      = 0,
           attempts      = o.attempts - d.refund,
           last_error    = CASE WHEN d.status <> 'done' THEN coalesce(d.error, o.last_error) END,
           available_at  = coalesce(now() + d.delay * interval '1 second', o.available_at),
           pending_since = CASE WHEN d.status = 'pending' THEN o.pending_since END,
           done_at       = CASE WHEN d.status = 'done'
                                  OR d.status = 'dead' AND (o.ordering_key IS NULL OR d.skipped)
                                THEN now() END
      FROM decided AS d
     WHERE o.id = ANY (ARRAY (SELECT id FROM held WHERE NOT leaves))
       AND d.id = o.id
       AND d.version = o.lease_version
    RETURNING o.id, o.lease_version
)
SELECT id, lease_version FROM gone
 UNION ALL
SELECT id, lease_version FROM stays
"""

STATEMENTS: Mapping[Mode, bytes] = {"keep": KEEP, "delete": DELETE, "archive": ARCHIVE}
