"""Step 1: take unordered messages that are due, for a while.

Other branches are other statements, never one with OR: `lanes` and `reclaim`.
"""

from __future__ import annotations

import json
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from pgoutbox.dispatch.arrays import bigints, plain
from pgoutbox.dispatch.scan import FRONT, RECENT_SECONDS, Place
from pgoutbox.message import ClaimedMessage

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from pgoutbox.database.pool import Database
    from pgoutbox.dispatch.scan import Start

# Index outbox_ready, one range per destination: the limit is a column, so each destination gets
# as many rows as it has free slots and no plan depends on a parameter. SKIP LOCKED keeps two
# claims apart for the moment; status and lease do so after the commit. The ids come back
# through an array, since a join would let the planner walk the whole table.
#
# Where each destination's range begins is said by `pgoutbox.dispatch.scan`, and the last row
# answers for all: how far each range was read, and which destinations have ordered messages that
# are due (the newest first: under a held xmin horizon the oldest entries are of rows that left
# long ago).
#
# What does not fit in the budget stays pending: an answer that takes longer than the client waits
# would spend attempts on messages that nobody has seen. The first row of a destination always
# fits, and each has its own budget, so that large messages for one hold up none of the others. The
# sum runs over the rows as they are read, which needs no sort; sizes are those in the table, which
# are known without reading a payload that is stored apart from its row.
CLAIM = b"""
WITH wanted AS MATERIALIZED (
    SELECT w.destination, w.slots, w.floor_id,
           CASE WHEN w.recent THEN now() - %(recent)s
                WHEN w.last_at IS NULL THEN '-infinity'
                ELSE timestamptz 'epoch' + w.last_at * interval '1 microsecond'
           END AS floor_at,
           CASE WHEN w.recent OR w.last_at IS NOT NULL THEN now() - %(recent)s
                ELSE '-infinity'
           END AS lane_floor
      FROM unnest(%(destinations)s::text[], %(slots)s::integer[], %(recents)s::boolean[],
                  %(last_ats)s::bigint[], %(last_ids)s::bigint[])
           AS w (destination, slots, recent, last_at, floor_id)
), picked AS MATERIALIZED (
    SELECT w.destination, ready.id, ready.available_at,
           ready.total <= %(budget)s OR ready.total = ready.size AS fits
      FROM wanted AS w
     CROSS JOIN LATERAL (
        SELECT due.id, due.available_at, due.size,
               sum(due.size) OVER (ROWS UNBOUNDED PRECEDING) AS total
          FROM (
            SELECT o.id, o.available_at,
                   coalesce(octet_length(o.body), pg_column_size(o.payload))
                   + pg_column_size(o.headers) AS size
              FROM outbox AS o
             WHERE o.destination = w.destination
               AND o.status = 'pending'
               AND o.ordering_key IS NULL
               AND o.available_at <= now()
               AND (o.available_at, o.id) > (w.floor_at, w.floor_id)
               AND o.id <> ALL (%(held)s::bigint[])
             ORDER BY o.available_at, o.id
             LIMIT w.slots
               FOR UPDATE SKIP LOCKED) AS due) AS ready
), claimed AS (
    UPDATE outbox AS o
       SET status        = 'processing',
           lease_owner   = %(owner)s,
           lease_until   = now() + %(lease)s,
           lease_version = o.lease_version + 1,
           attempts      = o.attempts + 1
     WHERE o.id = ANY (ARRAY (SELECT id FROM picked WHERE fits))
    RETURNING o.id, o.lease_version, o.attempts, o.reclaims, o.message_id, o.destination,
              o.ordering_key, o.aggregate_type, o.aggregate_id, o.event_type, o.content_type,
              coalesce(o.body, convert_to(o.payload::text, 'UTF8')) AS body,
              o.headers::text AS headers, o.created_at,
              greatest(extract(epoch FROM now() - o.pending_since)::float8, 0) AS age
)
SELECT c.*, NULL AS found
  FROM claimed AS c
UNION ALL
SELECT NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL,
       (SELECT json_build_object(
            'cut', (SELECT NOT coalesce(bool_and(fits), true) FROM picked),
            'last', (SELECT json_object_agg(p.destination, p.place)
                       FROM (
                        SELECT destination,
                               max(ARRAY[(extract(epoch FROM available_at) * 1000000)::bigint, id])
                                   AS place
                          FROM picked
                         WHERE fits
                         GROUP BY destination) AS p),
            'lanes', (SELECT json_agg(w.destination)
                        FROM wanted AS w
                       WHERE (SELECT true
                                FROM outbox AS o
                               WHERE o.destination = w.destination
                                 AND o.status = 'pending'
                                 AND o.ordering_key IS NOT NULL
                                 AND o.available_at <= now()
                                 AND o.available_at > w.lane_floor
                               ORDER BY o.available_at DESC, o.id DESC
                               LIMIT 1)))::text)
"""

SUSPECT_RECLAIMS = 2
MAX_CLAIM_BYTES = 16 * 1024 * 1024
"""As stored, in one claim. Each destination has an equal part, and one message in any case."""


class ClaimedBatch(list[ClaimedMessage]):
    """What one claim brought."""

    cut = False
    """Its bytes ran out before its slots did: there is more to be claimed at once."""
    last: Mapping[str, Place] = {}
    """The last message of each destination."""
    ordered: Collection[str] = ()
    """Destinations with due messages that have an ordering key; `claim` leaves those alone."""


async def claim(  # noqa: PLR0913 - the parameters of one statement
    db: Database,
    *,
    owner: str,
    lease: float,
    slots: Mapping[str, int],
    starts: Mapping[str, Start] | None = None,
    held: Iterable[int] = (),
    budget: int = MAX_CLAIM_BYTES,
) -> ClaimedBatch:
    """Up to ``slots[destination]`` due messages each, leased for ``lease`` seconds. In id order.

    ``starts`` says where to begin, by default at the front; the ids in ``held`` are left alone.
    ``budget`` is the most bytes that they may take in the table, except that each destination gets
    one message of any size. Never cancel it: a claim that commits unseen leaves rows that nobody
    works on.
    """
    begins = [(starts or {}).get(name, FRONT) for name in slots]
    *rows, (*_, found) = await db.fetch(
        CLAIM,
        {
            "destinations": list(slots),
            "slots": list(slots.values()),
            "recents": plain([start.recent for start in begins]),
            "last_ats": plain([start.place and start.place.microseconds for start in begins]),
            "last_ids": plain([start.place.id if start.place else 0 for start in begins]),
            "recent": timedelta(seconds=RECENT_SECONDS),
            "held": bigints(held),
            "owner": owner,
            "lease": timedelta(seconds=lease),
            "budget": budget // max(len(slots), 1),
        },
    )
    said = json.loads(found)
    batch = as_batch(rows)
    batch.cut = said["cut"]
    batch.last = {name: Place(*place) for name, place in (said["last"] or {}).items()}
    batch.ordered = said["lanes"] or ()
    return batch


def is_suspect(message: ClaimedMessage) -> bool:
    """Reclaimed twice or more in a row: perhaps the message itself ends its workers."""
    return message.reclaims >= SUSPECT_RECLAIMS


def as_batch(rows: list[tuple[Any, ...]]) -> ClaimedBatch:
    """Rows of either statement: a message's fields in their order, and one column more."""
    return ClaimedBatch(sorted([ClaimedMessage._make(row[:-1]) for row in rows]))
