"""Extend the leases of what is in flight, and let go of what cannot be extended."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, NamedTuple

from pgoutbox.dispatch.arrays import bigints

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pgoutbox.database.pool import Database
    from pgoutbox.message import ClaimedMessage

# The same fence as the finalize. SKIP LOCKED: one row that somebody has locked must not cost the
# leases of all the others. Whoever locks it may be ourselves, finalizing it; another worker,
# reclaiming it; or a person with an open transaction.
RENEW = b"""
WITH held AS MATERIALIZED (
    SELECT fenced.id
      FROM (SELECT *
              FROM unnest(%(ids)s::bigint[], %(versions)s::bigint[]) AS h (id, version)
             ORDER BY id) AS h
     CROSS JOIN LATERAL (
        SELECT o.id
          FROM outbox AS o
         WHERE o.id = h.id
           AND o.lease_version = h.version
           AND o.status = 'processing'
           FOR UPDATE SKIP LOCKED) AS fenced
)
UPDATE outbox AS o
   SET lease_until = now() + %(lease)s
 WHERE o.id = ANY (ARRAY (SELECT id FROM held))
RETURNING o.id, o.lease_version
"""


# What became of the rows that were not renewed, by what is committed: still ours means locked.
LOOK = b"""
SELECT o.id, o.lease_version
  FROM unnest(%(ids)s::bigint[], %(versions)s::bigint[]) AS h (id, version)
 CROSS JOIN LATERAL (
    SELECT p.id, p.lease_version
      FROM outbox AS p
     WHERE p.id = h.id
       AND p.lease_version = h.version
       AND p.status = 'processing') AS o
"""


class Renewal(NamedTuple):
    """Pairs of id and version, as in `ClaimedMessage.lease`."""

    kept: set[tuple[int, int]]
    """Ours for the whole lease, counted from before the call."""
    lost: set[tuple[int, int]]
    """Finalized or somebody else's. What is in neither set was locked: not ours any longer than
    before, and not lost."""


async def renew(db: Database, messages: Sequence[ClaimedMessage], *, lease: float) -> Renewal:
    """Extend the leases by ``lease`` seconds from now."""
    asked = {
        "ids": bigints(message.id for message in messages),
        "versions": bigints(message.lease_version for message in messages),
    }
    kept = set(await db.fetch(RENEW, asked | {"lease": timedelta(seconds=lease)}))
    missing = {message.lease for message in messages} - kept
    if not missing:
        return Renewal(kept, set())
    return Renewal(kept, missing - set(await db.fetch(LOOK, asked)))
