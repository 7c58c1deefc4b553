"""Extend the leases of what is in flight, and let go of what cannot be extended."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from pgoutbox.dispatch.arrays import bigints

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pgoutbox.database.pool import Database
    from pgoutbox.message import ClaimedMessage

# The same fence and the same order of locks as the finalize, so the two may wait for each other
# but never deadlock. A row that was finalized or reclaimed meanwhile is not returned.
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
           FOR UPDATE) AS fenced
)
UPDATE outbox AS o
   SET lease_until = now() + %(lease)s
 WHERE o.id = ANY (ARRAY (SELECT id FROM held))
RETURNING o.id, o.lease_version
"""


async def renew(
    db: Database, messages: Sequence[ClaimedMessage], *, lease: float
) -> set[tuple[int, int]]:
    """What is ours for another ``lease`` seconds, counted from before this call.

    Pairs of id and version, as in `ClaimedMessage.lease`.
    """
    return set(
        await db.fetch(
            RENEW,
            {
                "ids": bigints(message.id for message in messages),
                "versions": bigints(message.lease_version for message in messages),
                "lease": timedelta(seconds=lease),
            },
        )
    )
