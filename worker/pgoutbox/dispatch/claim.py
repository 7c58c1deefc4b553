"""Step 1: take messages for a while. Two statements, one per branch, never one with OR."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

from pgoutbox.dispatch.arrays import bigints
from pgoutbox.message import ClaimedMessage

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from pgoutbox.database.pool import Database

# Index outbox_ready, one range per destination: the limit is a column, so each destination gets
# as many rows as it has free slots and no plan depends on a parameter. SKIP LOCKED keeps two
# claims apart for the moment; status and lease do so after the commit. The ids come back
# through an array, since a join would let the planner walk the whole table.
#
# What does not fit in the budget stays pending: an answer that takes longer than the client waits
# would spend attempts on messages that nobody has seen. The first row of a destination always
# fits, and each has its own budget, so that large messages for one hold up none of the others. The
# sum runs over the rows as they are read, which needs no sort; sizes are those in the table, which
# are known without reading a payload that is stored apart from its row.
CLAIM = b"""
WITH wanted AS MATERIALIZED (
    SELECT * FROM unnest(%(destinations)s::text[], %(slots)s::integer[]) AS w (destination, slots)
), picked AS MATERIALIZED (
    SELECT ready.id, ready.total <= %(budget)s OR ready.total = ready.size AS fits
      FROM wanted AS w
     CROSS JOIN LATERAL (
        SELECT due.id, due.size, sum(due.size) OVER (ROWS UNBOUNDED PRECEDING) AS total
          FROM (
            SELECT o.id,
                   coalesce(octet_length(o.body), pg_column_size(o.payload))
                   + pg_column_size(o.headers) AS size
              FROM outbox AS o
             WHERE o.destination = w.destination
               AND o.status = 'pending'
               AND o.ordering_key IS NULL
               AND o.available_at <= now()
             ORDER BY o.available_at, o.id
             LIMIT w.slots
               FOR UPDATE SKIP LOCKED) AS due) AS ready
)
UPDATE outbox AS o
   SET status        = 'processing',
       lease_owner   = %(owner)s,
       lease_until   = now() + %(lease)s,
       lease_version = o.lease_version + 1,
       attempts      = o.attempts + 1
 WHERE o.id = ANY (ARRAY (SELECT id FROM picked WHERE fits))
RETURNING o.id, o.lease_version, o.attempts, o.reclaims, o.message_id, o.destination,
          o.ordering_key, o.aggregate_type, o.aggregate_id, o.event_type, o.content_type,
          coalesce(o.body, convert_to(o.payload::text, 'UTF8')), o.headers::text, o.created_at,
          greatest(extract(epoch FROM now() - o.pending_since)::float8, 0),
          (SELECT NOT bool_and(fits) FROM picked)
"""

# Index outbox_leased. A row that is about to be reclaimed for the second time is a suspect: it may
# be what kills the workers, so it must not travel in a crowd that dies with it again and again.
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

SUSPECT_RECLAIMS = 2
MAX_CLAIM_BYTES = 16 * 1024 * 1024
"""As stored, in one claim. Each destination has an equal part, and one message in any case."""


class ClaimedBatch(list[ClaimedMessage]):
    """What one claim brought."""

    cut = False
    """Its bytes ran out before its slots did: there is more to be claimed at once."""


async def claim(
    db: Database,
    *,
    owner: str,
    lease: float,
    slots: Mapping[str, int],
    budget: int = MAX_CLAIM_BYTES,
) -> ClaimedBatch:
    """Up to ``slots[destination]`` due messages each, leased for ``lease`` seconds. In id order.

    ``budget`` is the most bytes that they may take in the table, except that each destination gets
    one message of any size. Never cancel it: a claim that commits unseen leaves rows that nobody
    works on.
    """
    rows = await db.fetch(
        CLAIM,
        {
            "destinations": list(slots),
            "slots": list(slots.values()),
            "owner": owner,
            "lease": timedelta(seconds=lease),
            "budget": budget // max(len(slots), 1),
        },
    )
    return as_batch(rows)


async def reclaim(  # noqa: PLR0913 - the parameters of one statement
    db: Database,
    *,
    owner: str,
    lease: float,
    slots: Mapping[str, tuple[int, int]],
    suspect_allowed: bool,
    held: Iterable[int] = (),
    budget: int = MAX_CLAIM_BYTES,
) -> ClaimedBatch:
    """Messages whose lease expired below their limit of attempts.

    ``slots[destination]`` is (free slots, max attempts). At most one suspect comes along, and
    only where ``suspect_allowed``. The ids in ``held`` are left alone: after an outage this
    worker may have results of its own that are still to be written. The rest is as for `claim`.
    """
    rows = await db.fetch(
        RECLAIM,
        {
            "destinations": list(slots),
            "slots": [free for free, _ in slots.values()],
            "max_attempts": [limit for _, limit in slots.values()],
            "owner": owner,
            "lease": timedelta(seconds=lease),
            "suspect_allowed": suspect_allowed,
            "held": bigints(held),
            "budget": budget // max(len(slots), 1),
        },
    )
    return as_batch(rows)


def is_suspect(message: ClaimedMessage) -> bool:
    """Reclaimed twice or more in a row: perhaps the message itself ends its workers."""
    return message.reclaims >= SUSPECT_RECLAIMS


def as_batch(rows: list[tuple[Any, ...]]) -> ClaimedBatch:
    """Rows of either statement: a message's fields in their order, then whether it was cut."""
    batch = ClaimedBatch([ClaimedMessage._make(row[:-1]) for row in rows])
    batch.cut = bool(rows) and rows[0][-1]
    batch.sort()
    return batch
