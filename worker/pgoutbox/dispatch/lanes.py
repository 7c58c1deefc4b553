"""Step 1 for ordered messages: take runs, each the front of one lane.

A lane is owned through the leases of its rows and nothing else: no session lock, no second table.
What must hold when several workers claim at once:

- A run is contiguous from the lane's head, and is cut at the first row that could not be locked.
- Head and tail are locked under the whole condition that made them claimable, since a row may have
  been claimed, failed and been put off again after this statement's snapshot was taken.
- A lane in which anything else is leased is left alone.
"""

from __future__ import annotations

import json
from collections import defaultdict
from datetime import timedelta
from typing import TYPE_CHECKING, Any, NamedTuple

from pgoutbox.dispatch.arrays import bigints, plain
from pgoutbox.dispatch.claim import MAX_CLAIM_BYTES
from pgoutbox.dispatch.scan import RECENT_SECONDS
from pgoutbox.message import ClaimedMessage

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from pgoutbox.database.pool import Database

# Three ways to a lane, each a range of one index:
#   walked   outbox_lane, one probe per lane from the cursor on, until enough heads are due. It
#            finds every lane in the end, at some microseconds each.
#   fresh    outbox_lane_ready, what became due in the last seconds, the newest first: so that a new
#            message need not wait for the walk to come round.
#   tried    hot lanes, whose head is looked for from the row on that was the head last time: under
#            a held xmin horizon the index keeps every row that left the lane since. The walk steps
#            over them (next_hot), for the same reason.
# Where they find more than there is room for, they take turns; the walk goes on with the first of
# those that it found and had to leave.
# SKIP LOCKED on heads: two claims of one lane cannot both hold its head. The bytes are counted as
# in CLAIM, first all heads, then all second rows: whatever does not fit, each lane keeps a front.
# Nothing is locked that is not to be claimed, heads aside, and of many lanes only a little is read.
CLAIM_RUNS = b"""
WITH RECURSIVE hot AS MATERIALIZED (
    SELECT *
      FROM unnest(%(hot_keys)s::text[], %(hot_ids)s::bigint[], %(hot_tries)s::boolean[])
           AS h (ordering_key, id, try)
), walked AS (
    SELECT %(cursor)s::text COLLATE "C" AS ordering_key, NULL::bigint AS id, false AS due,
           0 AS steps, 0 AS found
    UNION ALL
    SELECT head.ordering_key, head.id, head.due, w.steps + 1, w.found + head.due::integer
      FROM walked AS w
     CROSS JOIN LATERAL (
        SELECT min(h.ordering_key COLLATE "C") AS ordering_key
          FROM hot AS h
         WHERE h.ordering_key COLLATE "C" > w.ordering_key) AS next_hot
     CROSS JOIN LATERAL (
        (SELECT o.ordering_key, o.id, o.status = 'pending' AND o.available_at <= now() AS due
           FROM outbox AS o
          WHERE next_hot.ordering_key IS NULL
            AND o.destination = %(destination)s
            AND o.ordering_key > w.ordering_key
            AND o.ordering_key IS NOT NULL
            AND o.done_at IS NULL
          ORDER BY o.ordering_key, o.id
          LIMIT 1)
        UNION ALL
        (SELECT o.ordering_key, o.id, o.status = 'pending' AND o.available_at <= now()
           FROM outbox AS o
          WHERE next_hot.ordering_key IS NOT NULL
            AND o.destination = %(destination)s
            AND o.ordering_key > w.ordering_key
            AND o.ordering_key < next_hot.ordering_key
            AND o.ordering_key IS NOT NULL
            AND o.done_at IS NULL
          ORDER BY o.ordering_key, o.id
          LIMIT 1)
        UNION ALL
        SELECT next_hot.ordering_key, NULL, false
         WHERE next_hot.ordering_key IS NOT NULL
        LIMIT 1) AS head
     WHERE w.steps < %(steps)s
       AND w.found < %(lanes)s
), named AS MATERIALIZED (
    SELECT h.ordering_key, h.id, 1 AS way
      FROM hot AS h
     WHERE h.try
    UNION ALL
    SELECT DISTINCT f.ordering_key, 0, 2
      FROM (
        SELECT o.ordering_key
          FROM outbox AS o
         WHERE o.destination = %(destination)s
           AND o.status = 'pending'
           AND o.ordering_key IS NOT NULL
           AND o.available_at <= now()
           AND o.available_at > now() - %(recent)s
         ORDER BY o.available_at DESC, o.id DESC
         LIMIT %(fresh)s) AS f
     WHERE f.ordering_key <> ALL (ARRAY (SELECT h.ordering_key FROM hot AS h))
), probed AS MATERIALIZED (
    SELECT n.ordering_key, n.way, head.id
      FROM named AS n
     CROSS JOIN LATERAL (
        SELECT o.id, o.status, o.available_at
          FROM outbox AS o
         WHERE o.destination = %(destination)s
           AND o.ordering_key = n.ordering_key
           AND o.id >= n.id
           AND o.ordering_key IS NOT NULL
           AND o.done_at IS NULL
         ORDER BY o.ordering_key, o.id
         LIMIT 1) AS head
     WHERE head.status = 'pending'
       AND head.available_at <= now()
), due AS MATERIALIZED (
    SELECT queued.id
      FROM (
        SELECT found.id, found.way,
               row_number() OVER (PARTITION BY found.way ORDER BY found.place) AS place
          FROM (
            SELECT id, way, id AS place
              FROM probed
            UNION ALL
            SELECT id, 3, steps
              FROM walked
             WHERE due) AS found) AS queued
     GROUP BY queued.id
     ORDER BY min(queued.place), min((queued.way + %(turn)s) %% 3)
     LIMIT %(lanes)s
), passed AS MATERIALIZED (
    SELECT min(w.steps) AS steps
      FROM walked AS w
     WHERE w.due
       AND w.id <> ALL (ARRAY (SELECT id FROM due))
), heads AS MATERIALIZED (
    SELECT o.id, o.ordering_key
      FROM outbox AS o
     WHERE o.id = ANY (ARRAY (SELECT id FROM due))
       AND o.status = 'pending'
       AND o.available_at <= now()
       FOR UPDATE SKIP LOCKED
), width AS MATERIALIZED (
    SELECT greatest(least(%(run)s, 4 * %(rows)s / greatest(count(*), 1)), 1) AS rows
      FROM heads
), front AS MATERIALIZED (
    SELECT h.ordering_key, r.id, r.size, r.position,
           bool_and(r.id = h.id OR r.status = 'pending' AND r.available_at <= now())
               OVER (PARTITION BY h.id ORDER BY r.id) AS due,
           bool_or(r.status = 'processing') OVER (PARTITION BY h.id) AS leased
      FROM heads AS h
     CROSS JOIN LATERAL (
        SELECT o.id, o.status, o.available_at,
               coalesce(octet_length(o.body), pg_column_size(o.payload))
               + pg_column_size(o.headers) AS size,
               row_number() OVER (ORDER BY o.id) AS position
          FROM outbox AS o
         WHERE o.destination = %(destination)s
           AND o.ordering_key = h.ordering_key
           AND o.id >= h.id
           AND o.ordering_key IS NOT NULL
           AND o.done_at IS NULL
         ORDER BY o.ordering_key, o.id
         LIMIT (SELECT rows + 1 FROM width)) AS r
), counted AS MATERIALIZED (
    SELECT f.ordering_key, f.id, f.position,
           row_number() OVER breadth AS number,
           sum(f.size) OVER breadth AS total
      FROM front AS f
     WHERE f.due
       AND NOT f.leased
       AND f.position <= (SELECT rows FROM width)
    WINDOW breadth AS (ORDER BY f.position, f.ordering_key ROWS UNBOUNDED PRECEDING)
), chosen AS MATERIALIZED (
    SELECT c.ordering_key, c.id, c.position
      FROM counted AS c
     WHERE c.number <= %(rows)s
       AND (c.total <= %(budget)s OR c.number = 1)
), tail AS MATERIALIZED (
    SELECT o.id
      FROM outbox AS o
     WHERE o.id = ANY (ARRAY (SELECT c.id FROM chosen AS c WHERE c.position > 1))
       AND o.status = 'pending'
       AND o.available_at <= now()
       FOR UPDATE SKIP LOCKED
), held AS MATERIALIZED (
    SELECT c.id, c.position,
           row_number() OVER (PARTITION BY c.ordering_key ORDER BY c.id) AS rank
      FROM chosen AS c
     WHERE c.position = 1
        OR c.id IN (SELECT id FROM tail)
), claimed AS (
    UPDATE outbox AS o
       SET status        = 'processing',
           lease_owner   = %(owner)s,
           lease_until   = now() + %(lease)s,
           lease_version = o.lease_version + 1,
           attempts      = o.attempts + 1
     WHERE o.id = ANY (ARRAY (SELECT h.id FROM held AS h WHERE h.position = h.rank))
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
            'cursor', (SELECT w.ordering_key
                         FROM walked AS w
                        WHERE w.steps < coalesce((SELECT p.steps FROM passed AS p), %(steps)s + 1)
                        ORDER BY w.steps DESC
                        LIMIT 1),
            'ended', (SELECT max(w.steps) < %(steps)s AND max(w.found) < %(lanes)s FROM walked AS w)
                     AND (SELECT p.steps IS NULL FROM passed AS p),
            'found', EXISTS (SELECT FROM held AS h WHERE h.id = ANY (ARRAY (SELECT id FROM walked)))
                     OR (SELECT p.steps IS NOT NULL FROM passed AS p),
            'missed', (SELECT coalesce(json_agg(n.ordering_key), '[]')
                         FROM named AS n
                        WHERE n.way = 1
                          AND n.ordering_key <> ALL (ARRAY (SELECT ordering_key FROM probed))),
            'width', (SELECT w.rows FROM width AS w))::text)
"""


class Asked(NamedTuple):
    """What one claim of one destination may bring, and where it looks."""

    destination: str
    lanes: int
    rows: int
    run: int
    """Messages of one lane, at most."""
    cursor: str = ""
    steps: int = 500
    fresh: int = 0
    hot: Mapping[str, int] = {}
    """Lanes, and the row from which on to look for their heads."""
    tried: Sequence[str] = ()
    """Those of them to be claimed; the others are only stepped over."""
    turn: int = 0
    """Counts the claims, for the three ways to a lane come first in turn."""


class Runs(NamedTuple):
    """What it brought: each lane's messages in order, and how far the walk came."""

    lanes: dict[str, list[ClaimedMessage]]
    cursor: str
    ended: bool
    """There is no lane behind the cursor."""
    found: bool
    """The walk took a lane, or left one for lack of room."""
    missed: Sequence[str]
    """Lanes that were tried, and whose heads cannot be claimed."""
    width: int
    """Messages of one lane, at most, for so many lanes: a lane that brought as many has more."""

    @property
    def messages(self) -> list[ClaimedMessage]:
        """Of all lanes, in id order."""
        return sorted(message for run in self.lanes.values() for message in run)


async def claim_runs(
    db: Database, asked: Asked, *, owner: str, lease: float, budget: int = MAX_CLAIM_BYTES
) -> Runs:
    """Runs of up to ``asked.lanes`` lanes, leased for ``lease`` seconds.

    Never cancel it, as for `pgoutbox.dispatch.claim.claim`.
    """
    parameters = {
        "destination": asked.destination,
        "lanes": asked.lanes,
        "rows": asked.rows,
        "run": asked.run,
        "cursor": asked.cursor,
        "steps": asked.steps,
        "fresh": asked.fresh,
        "turn": asked.turn,
        "recent": timedelta(seconds=RECENT_SECONDS),
        "hot_keys": list(asked.hot),
        "hot_ids": bigints(asked.hot.values()),
        "hot_tries": plain([lane in asked.tried for lane in asked.hot]),
        "owner": owner,
        "lease": timedelta(seconds=lease),
        "budget": budget,
    }
    *rows, (*_, found) = await db.fetch(CLAIM_RUNS, parameters)
    return Runs(_by_lane(rows), **json.loads(found))


def _by_lane(rows: Iterable[tuple[Any, ...]]) -> dict[str, list[ClaimedMessage]]:
    lanes: defaultdict[str, list[ClaimedMessage]] = defaultdict(list)
    for message in sorted(ClaimedMessage._make(row[:-1]) for row in rows):
        lanes[message.ordering_key or ""].append(message)
    return dict(lanes)
