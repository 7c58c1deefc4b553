"""Step 1: take messages for a while. Two statements, one per branch, never one with OR."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

from pgoutbox.message import ClaimedMessage

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pgoutbox.database.pool import Database

# Index outbox_ready, one range per destination: the limit is a column, so each destination gets
# as many rows as it has free slots and no plan depends on a parameter. SKIP LOCKED keeps two
# claims apart for the moment; status and lease do so after the commit. The ids come back
# through an array, since a join would let the planner walk the whole table.
CLAIM = b"""
WITH wanted AS MATERIALIZED (
    SELECT * FROM unnest(%(destinations)s::text[], %(slots)s::integer[]) AS w (destination, slots)
), picked AS MATERIALIZED (
    SELECT ready.id
      FROM wanted AS w
     CROSS JOIN LATERAL (
        SELECT o.id
          FROM outbox AS o
         WHERE o.destination = w.destination
           AND o.status = 'pending'
           AND o.ordering_key IS NULL
           AND o.available_at <= now()
         ORDER BY o.available_at, o.id
         LIMIT w.slots
           FOR UPDATE SKIP LOCKED) AS ready
)
UPDATE outbox AS o
   SET status        = 'processing',
       lease_owner   = %(owner)s,
       lease_until   = now() + %(lease)s,
       lease_version = o.lease_version + 1,
       attempts      = o.attempts + 1
 WHERE o.id = ANY (ARRAY (SELECT id FROM picked))
RETURNING o.id, o.lease_version, o.attempts, o.reclaims, o.message_id, o.destination,
          o.ordering_key, o.aggregate_type, o.aggregate_id, o.event_type, o.content_type,
          coalesce(o.body, convert_to(o.payload::text, 'UTF8')), o.headers::text, o.created_at,
          extract(epoch FROM now() - o.created_at)::float8
"""

# Index outbox_leased. A row that is about to be reclaimed for the second time is a suspect: it may
# be what kills the workers, so it must not travel in a crowd that dies with it again and again.
RECLAIM = b"""
WITH wanted AS MATERIALIZED (
    SELECT *
      FROM unnest(%(destinations)s::text[], %(slots)s::integer[], %(max_attempts)s::integer[])
           AS w (destination, slots, max_attempts)
), innocent AS MATERIALIZED (
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
           AND o.reclaims = 0
         ORDER BY o.lease_until
         LIMIT w.slots
           FOR UPDATE SKIP LOCKED) AS expired
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
 WHERE o.id = ANY (ARRAY (SELECT id FROM innocent UNION ALL SELECT id FROM suspect))
RETURNING o.id, o.lease_version, o.attempts, o.reclaims, o.message_id, o.destination,
          o.ordering_key, o.aggregate_type, o.aggregate_id, o.event_type, o.content_type,
          coalesce(o.body, convert_to(o.payload::text, 'UTF8')), o.headers::text, o.created_at,
          extract(epoch FROM now() - o.created_at)::float8
"""

SUSPECT_RECLAIMS = 2


async def claim(
    db: Database, *, owner: str, lease: float, slots: Mapping[str, int]
) -> list[ClaimedMessage]:
    """Up to ``slots[destination]`` due messages each, leased for ``lease`` seconds. In id order.

    Never cancel it: a claim that commits unseen leaves rows that nobody works on.
    """
    claimed: list[ClaimedMessage] = await db.fetch(
        CLAIM,
        {
            "destinations": list(slots),
            "slots": list(slots.values()),
            "owner": owner,
            "lease": timedelta(seconds=lease),
        },
        row_factory=as_claimed,
    )
    claimed.sort()
    return claimed


async def reclaim(
    db: Database,
    *,
    owner: str,
    lease: float,
    slots: Mapping[str, tuple[int, int]],
    suspect_allowed: bool,
) -> list[ClaimedMessage]:
    """Messages whose lease expired below their limit of attempts.

    ``slots[destination]`` is (free slots, max attempts). At most one suspect comes along, and
    only where ``suspect_allowed``. The rest is as for `claim`.
    """
    claimed: list[ClaimedMessage] = await db.fetch(
        RECLAIM,
        {
            "destinations": list(slots),
            "slots": [free for free, _ in slots.values()],
            "max_attempts": [limit for _, limit in slots.values()],
            "owner": owner,
            "lease": timedelta(seconds=lease),
            "suspect_allowed": suspect_allowed,
        },
        row_factory=as_claimed,
    )
    claimed.sort()
    return claimed


def is_suspect(message: ClaimedMessage) -> bool:
    """Reclaimed twice or more in a row: perhaps the message itself ends its workers."""
    return message.reclaims >= SUSPECT_RECLAIMS


def as_claimed(_cursor: object) -> Callable[[Any], ClaimedMessage]:
    """A psycopg row factory; the fields stand in the order of the RETURNING list."""
    return ClaimedMessage._make
