"""What any worker does now and then: bury, and say that it lives."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pgoutbox.dispatch.arrays import bigints, plain
from pgoutbox.dispatch.reclaim import EVER

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping
    from datetime import timedelta

    from pgoutbox.database.pool import Database

# Index outbox_leased, only destinations of this worker: another's limit of attempts is not ours
# to judge. SKIP LOCKED: a row that is just being finalized or renewed is not expired after all.
# The version goes up, so that its late owner can tell that it was taken away. Of a lane only the
# head is buried; what was claimed together with it never began, and goes back with its attempt
# (coalesce, as in RECLAIM_HEADS).
REAP = b"""
WITH served AS MATERIALIZED (
    SELECT *
      FROM unnest(%(destinations)s::text[], %(max_attempts)s::integer[], %(skips)s::boolean[])
           AS s (destination, max_attempts, skip)
), spent AS MATERIALIZED (
    SELECT expired.id, expired.destination, expired.ordering_key
      FROM served AS s
     CROSS JOIN LATERAL (
        SELECT o.id, o.destination, o.ordering_key
          FROM outbox AS o
         WHERE o.destination = s.destination
           AND o.lease_until < now()
           AND o.lease_until > now() - %(since)s
           AND o.status = 'processing'
           AND o.attempts >= s.max_attempts
           AND o.id <> ALL (%(held)s::bigint[])
           AND (o.ordering_key IS NULL
                OR NOT EXISTS (
                    SELECT
                      FROM outbox AS earlier
                     WHERE earlier.destination = o.destination
                       AND earlier.ordering_key = o.ordering_key
                       AND earlier.ordering_key IS NOT NULL
                       AND earlier.done_at IS NULL
                       AND earlier.id < o.id))
         ORDER BY o.lease_until
         LIMIT 500
           FOR UPDATE SKIP LOCKED) AS expired
), rest AS MATERIALIZED (
    SELECT behind.id
      FROM (SELECT * FROM spent WHERE ordering_key IS NOT NULL ORDER BY id) AS s
     CROSS JOIN LATERAL (
        SELECT o.id
          FROM outbox AS o
         WHERE o.destination = s.destination
           AND o.ordering_key = s.ordering_key
           AND o.id > s.id
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
           lease_version = o.lease_version + 1,
           lease_owner   = NULL,
           lease_until   = NULL,
           attempts      = greatest(o.attempts - 1, 0)
     WHERE o.id = ANY (ARRAY (SELECT id FROM rest))
)
UPDATE outbox AS o
   SET status        = 'dead',
       lease_version = o.lease_version + 1,
       lease_owner   = NULL,
       lease_until   = NULL,
       available_at  = now(),
       pending_since = NULL,
       done_at       = CASE WHEN o.ordering_key IS NULL
                              OR o.destination = ANY (ARRAY (
                                    SELECT destination FROM served WHERE skip))
                            THEN now() END,
       last_error    = left(format(
           'the lease of %%s expired at attempt %%s: the worker was killed or hung, each time',
           o.lease_owner, o.attempts), 2000)
 WHERE o.id = ANY (ARRAY (SELECT id FROM spent))
RETURNING o.destination
"""

HEARTBEAT = b"""
INSERT INTO outbox_workers
            (incarnation, owner, version, state, slots, busy, counters, destinations)
VALUES (%(incarnation)s, %(owner)s, %(version)s, %(state)s, %(slots)s, %(busy)s,
        %(counters)s::jsonb, %(destinations)s::jsonb)
    ON CONFLICT (incarnation) DO UPDATE
   SET seen_at = now(), state = EXCLUDED.state, slots = EXCLUDED.slots, busy = EXCLUDED.busy,
       counters = EXCLUDED.counters, destinations = EXCLUDED.destinations
"""

FAREWELL = b"DELETE FROM outbox_workers WHERE incarnation = %(incarnation)s"

# Of workers that were killed. An hour: long enough for people to look at what happened.
FORGET = b"DELETE FROM outbox_workers WHERE seen_at < now() - interval '1 hour'"


REAP_BATCH = 500
"""The LIMIT of `REAP`, per destination."""


async def reap(
    db: Database,
    max_attempts: Mapping[str, int],
    held: Iterable[int] = (),
    skip: Collection[str] = (),
    since: timedelta = EVER,
) -> Counter[str]:
    """Bury what expired at its limit, except ``held``; how many per destination.

    `REAP_BATCH` of each at most, and only leases that expired within ``since``. In the
    destinations of ``skip`` a dead message leaves its lane.
    """
    rows = await db.fetch(
        REAP,
        {
            "destinations": list(max_attempts),
            "max_attempts": list(max_attempts.values()),
            "skips": plain([name in skip for name in max_attempts]),
            "held": bigints(held),
            "since": since,
        },
    )
    return Counter(destination for (destination,) in rows)


@dataclass(frozen=True, slots=True, kw_only=True)
class Heartbeat:
    """One row of outbox_workers."""

    incarnation: str
    owner: str
    version: str
    state: str
    slots: int
    busy: int
    counters: Mapping[str, float] = field(default_factory=dict)
    destinations: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)


async def beat(db: Database, heartbeat: Heartbeat) -> None:
    """Say that this worker lives, and what it is doing."""
    await db.execute(
        HEARTBEAT,
        {
            "incarnation": heartbeat.incarnation,
            "owner": heartbeat.owner,
            "version": heartbeat.version,
            "state": heartbeat.state,
            "slots": heartbeat.slots,
            "busy": heartbeat.busy,
            "counters": json.dumps(heartbeat.counters),
            "destinations": json.dumps(heartbeat.destinations),
        },
    )
