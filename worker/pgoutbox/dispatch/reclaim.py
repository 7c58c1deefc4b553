"""Step 1 again, for messages whose lease expired: two branches, as for the claim."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

from pgoutbox.dispatch.arrays import bigints
from pgoutbox.dispatch.claim import MAX_CLAIM_BYTES, ClaimedBatch, as_batch
from pgoutbox.message import ClaimedMessage

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from pgoutbox.database.pool import Database

EVER = timedelta(days=36_500)
"""Longer ago than any lease."""

# Index outbox_leased, of which only the last part is read while since is short: under a held xmin
# horizon it keeps an entry for every lease that there was. A row that is about to be reclaimed for
# the second time is a suspect: it may be what kills the workers, so it must not travel in a crowd
# that dies with it again and again.
RECLAIM = b"""
WITH wanted AS MATERIALIZED (
    SELECT *
      FROM unnest(%(destinations)s::text[], %(slots)s::integer[], %(max_attempts)s::integer[])
           AS w (destination, slots, max_attempts)
), innocent AS MATERIALIZED (
    SELECT expired.id, expired.total <= %(budget)s OR expired.total = expired.size AS fits
      FROM wanted AS w
     CROSS JOIN LATERAL (
        SELECT late.id, late.size, sum(late.size) OVER (ROWS UNBOUNDED PRECEDING) AS total
          FROM (
            SELECT o.id,
                   coalesce(octet_length(o.body), pg_column_size(o.payload))
                   + pg_column_size(o.headers) AS size
              FROM outbox AS o
             WHERE o.destination = w.destination
               AND o.lease_until < now()
               AND o.lease_until > now() - %(since)s
               AND o.status = 'processing'
               AND o.ordering_key IS NULL
               AND o.attempts < w.max_attempts
               AND o.id <> ALL (%(held)s::bigint[])
               AND o.reclaims = 0
             ORDER BY o.lease_until
             LIMIT w.slots
               FOR UPDATE SKIP LOCKED) AS late) AS expired
), suspect AS MATERIALIZED (
    SELECT expired.id
      FROM wanted AS w
     CROSS JOIN LATERAL (
        SELECT o.id
          FROM outbox AS o
         WHERE o.destination = w.destination
           AND o.lease_until < now()
           AND o.lease_until > now() - %(since)s
           AND o.status = 'processing'
           AND o.ordering_key IS NULL
           AND o.attempts < w.max_attempts
           AND o.id <> ALL (%(held)s::bigint[])
           AND o.reclaims > 0
           AND %(suspect_allowed)s
         ORDER BY o.lease_until
         LIMIT 1
           FOR UPDATE SKIP LOCKED) AS expired
     LIMIT 1
)
UPDATE outbox AS o
   SET lease_owner   = %(owner)s,
       lease_until   = now() + %(lease)s,
       lease_version = o.lease_version + 1,
       attempts      = o.attempts + 1,
       reclaims      = o.reclaims + 1
 WHERE o.id = ANY (ARRAY (
            SELECT id FROM innocent WHERE fits UNION ALL SELECT id FROM suspect))
RETURNING o.id, o.lease_version, o.attempts, o.reclaims, o.message_id, o.destination,
          o.ordering_key, o.aggregate_type, o.aggregate_id, o.event_type, o.content_type,
          coalesce(o.body, convert_to(o.payload::text, 'UTF8')), o.headers::text, o.created_at,
          greatest(extract(epoch FROM now() - o.pending_since)::float8, 0),
          (SELECT NOT coalesce(bool_and(fits), true) FROM innocent)
"""

# Of a lane whose lease expired only the head is taken, for its owner may still be publishing: what
# came after it goes back, with its attempt refunded and a new version, so that the owner finds its
# whole run lost. Index outbox_leased, as in RECLAIM, finds the rows, outbox_lane their heads. A
# suspect is claimed alone, as in RECLAIM. Rows are locked in id order, lane by lane. Where the
# lease is tested by coalesce, no statistics can have all expired rows read again for each lane.
RECLAIM_HEADS = b"""
WITH wanted AS MATERIALIZED (
    SELECT *
      FROM unnest(%(destinations)s::text[], %(slots)s::integer[], %(max_attempts)s::integer[])
           AS w (destination, lanes, max_attempts)
), expired AS MATERIALIZED (
    SELECT DISTINCT w.destination, w.lanes, w.max_attempts, late.ordering_key
      FROM wanted AS w
     CROSS JOIN LATERAL (
        (SELECT o.ordering_key
           FROM outbox AS o
          WHERE o.destination = w.destination
            AND o.lease_until < now()
            AND o.lease_until > now() - %(since)s
            AND o.status = 'processing'
            AND o.ordering_key IS NOT NULL
            AND o.id <> ALL (%(held)s::bigint[])
            AND o.reclaims = 0
          ORDER BY o.lease_until
          LIMIT 500)
        UNION ALL
        (SELECT o.ordering_key
           FROM outbox AS o
          WHERE o.destination = w.destination
            AND o.lease_until < now()
            AND o.lease_until > now() - %(since)s
            AND o.status = 'processing'
            AND o.ordering_key IS NOT NULL
            AND o.id <> ALL (%(held)s::bigint[])
            AND o.reclaims > 0
          ORDER BY o.lease_until
          LIMIT 20)) AS late
), headed AS MATERIALIZED (
    SELECT e.destination, e.ordering_key, e.lanes, head.id,
           head.status = 'processing' AND head.lease_until < now()
               AND head.attempts < e.max_attempts AND head.id <> ALL (%(held)s::bigint[]) AS late,
           e.max_attempts,
           head.reclaims > 0 AS suspect, head.size
      FROM expired AS e
     CROSS JOIN LATERAL (
        SELECT o.id, o.status, o.lease_until, o.attempts, o.reclaims,
               coalesce(octet_length(o.body), pg_column_size(o.payload))
               + pg_column_size(o.headers) AS size
          FROM outbox AS o
         WHERE o.destination = e.destination
           AND o.ordering_key = e.ordering_key
           AND o.ordering_key IS NOT NULL
           AND o.done_at IS NULL
         ORDER BY o.ordering_key, o.id
         LIMIT 1) AS head
     ORDER BY head.id
), ranked AS MATERIALIZED (
    SELECT h.id, h.suspect, h.lanes, h.max_attempts,
           row_number() OVER (PARTITION BY h.suspect ORDER BY h.id) AS overall,
           row_number() OVER each AS number,
           sum(h.size) OVER each AS total
      FROM headed AS h
     WHERE h.late
    WINDOW each AS (PARTITION BY h.destination, h.suspect ORDER BY h.id ROWS UNBOUNDED PRECEDING)
), heads AS MATERIALIZED (
    SELECT free.id
      FROM (SELECT * FROM ranked ORDER BY id) AS r
     CROSS JOIN LATERAL (
        SELECT o.id
          FROM outbox AS o
         WHERE o.id = r.id
           AND o.status = 'processing'
           AND coalesce(o.lease_until < now(), false)
           AND o.attempts < r.max_attempts
           FOR UPDATE SKIP LOCKED) AS free
     WHERE r.number <= r.lanes
       AND (r.total <= %(budget)s OR r.number = 1)
       AND (NOT r.suspect OR %(suspect_allowed)s AND r.overall = 1)
), rest AS MATERIALIZED (
    SELECT behind.id
      FROM headed AS h
     CROSS JOIN LATERAL (
        SELECT o.id
          FROM outbox AS o
         WHERE o.destination = h.destination
           AND o.ordering_key = h.ordering_key
           AND o.id > h.id
           AND o.ordering_key IS NOT NULL
           AND o.done_at IS NULL
           AND o.status = 'processing'
           AND coalesce(o.lease_until < now(), false)
           AND o.id <> ALL (%(held)s::bigint[])
         ORDER BY o.ordering_key, o.id
         LIMIT 100
           FOR UPDATE SKIP LOCKED) AS behind
), returned AS (
    UPDATE outbox AS o
       SET status        = 'pending',
           lease_owner   = NULL,
           lease_until   = NULL,
           lease_version = o.lease_version + 1,
           attempts      = greatest(o.attempts - 1, 0)
     WHERE o.id = ANY (ARRAY (SELECT id FROM rest))
)
UPDATE outbox AS o
   SET lease_owner   = %(owner)s,
       lease_until   = now() + %(lease)s,
       lease_version = o.lease_version + 1,
       attempts      = o.attempts + 1,
       reclaims      = o.reclaims + 1
 WHERE o.id = ANY (ARRAY (SELECT id FROM heads))
RETURNING o.id, o.lease_version, o.attempts, o.reclaims, o.message_id, o.destination,
          o.ordering_key, o.aggregate_type, o.aggregate_id, o.event_type, o.content_type,
          coalesce(o.body, convert_to(o.payload::text, 'UTF8')), o.headers::text, o.created_at,
          greatest(extract(epoch FROM now() - o.pending_since)::float8, 0)
"""


async def reclaim(  # noqa: PLR0913 - the parameters of one statement
    db: Database,
    *,
    owner: str,
    lease: float,
    slots: Mapping[str, tuple[int, int]],
    suspect_allowed: bool,
    held: Iterable[int] = (),
    since: timedelta = EVER,
    budget: int = MAX_CLAIM_BYTES,
) -> ClaimedBatch:
    """Messages whose lease expired below their limit of attempts.

    ``slots[destination]`` is (free slots, max attempts). At most one suspect comes along, and
    only where ``suspect_allowed``. The ids in ``held`` are left alone: after an outage this
    worker may have results of its own that are still to be written. Leases that expired longer
    ago than ``since`` are not looked for. The rest is as for `claim`.
    """
    asked = _asked(slots, owner, lease, suspect_allowed=suspect_allowed, held=held)
    bounds = {"since": since, "budget": budget // max(len(slots), 1)}
    rows = await db.fetch(RECLAIM, asked | bounds)
    batch = as_batch(rows)
    batch.cut = bool(rows) and rows[0][-1]
    return batch


async def reclaim_heads(  # noqa: PLR0913 - the parameters of one statement
    db: Database,
    *,
    owner: str,
    lease: float,
    slots: Mapping[str, tuple[int, int]],
    suspect_allowed: bool,
    held: Iterable[int] = (),
    since: timedelta = EVER,
    budget: int = MAX_CLAIM_BYTES,
) -> list[ClaimedMessage]:
    """The heads of lanes whose lease expired, one message each; what came after them goes back.

    Parameters as for `reclaim`; ``slots`` are lanes.
    """
    asked = _asked(slots, owner, lease, suspect_allowed=suspect_allowed, held=held)
    bounds = {"since": since, "budget": budget // max(len(slots), 1)}
    rows = await db.fetch(RECLAIM_HEADS, asked | bounds)
    return sorted(map(ClaimedMessage._make, rows))


def _asked(
    slots: Mapping[str, tuple[int, int]],
    owner: str,
    lease: float,
    *,
    suspect_allowed: bool,
    held: Iterable[int],
) -> dict[str, Any]:
    return {
        "destinations": list(slots),
        "slots": [free for free, _ in slots.values()],
        "max_attempts": [limit for _, limit in slots.values()],
        "owner": owner,
        "lease": timedelta(seconds=lease),
        "suspect_allowed": suspect_allowed,
        "held": bigints(held),
    }
