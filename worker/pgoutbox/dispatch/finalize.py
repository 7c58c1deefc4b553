"""Step 4: write what was decided, under the fence. The only place that ends a lease.

Renewals aside (`pgoutbox.dispatch.renew`), no other statement writes to a row that somebody
holds. Every row carries id, version and status, and what was not written is reported.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, assert_never

from psycopg import DataError, IntegrityError

from pgoutbox.dispatch.arrays import bigints
from pgoutbox.outcome import Bury, DeferUntil, Finish, Release, Retry

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pgoutbox.database.pool import Database
    from pgoutbox.events import Settled

# Rows are locked one by one in id order (as every statement over several rows does, so none of
# them can deadlock) by a lateral probe of the primary key, which no statistics can turn into a
# quadratic join. A row that is locked by a renewal or a reclaim is waited for and then checked
# again: the fence is evaluated on its newest version.
FINALIZE = b"""
WITH decided AS MATERIALIZED (
    SELECT *
      FROM unnest(%(ids)s::bigint[], %(versions)s::bigint[], %(statuses)s::text[],
                  %(delays)s::float8[], %(refunds)s::integer[], %(errors)s::text[])
           AS d (id, version, status, delay, refund, error)
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
                              OR d.status = 'dead' AND o.ordering_key IS NULL THEN now() END
  FROM decided AS d
 WHERE o.id = ANY (ARRAY (SELECT id FROM held))
   AND d.id = o.id
   AND d.version = o.lease_version
RETURNING o.id, o.lease_version
"""

# After a lost answer: whose are the rows that the retry could not write?
EXPLAIN_UNWRITTEN = b"""
SELECT o.id, o.lease_version, o.status
  FROM unnest(%(ids)s::bigint[]) AS u (id)
 CROSS JOIN LATERAL (SELECT * FROM outbox AS p WHERE p.id = u.id) AS o
"""

MAX_ERROR_CHARACTERS = 2000


class Row(NamedTuple):
    """The columns of one transition."""

    status: str
    delay: float | None
    refund: int
    error: str | None


class Written(NamedTuple):
    """What one batch came to; see `pgoutbox.events.Finalized`."""

    written: list[Settled]
    lost: list[Settled]
    already_written: list[Settled]
    unknown: list[Settled]
    refused: list[Settled]


async def finalize(db: Database, batch: Sequence[Settled], *, retried: bool) -> Written:
    """Write the batch. ``retried``: an earlier try may have been committed without our knowing.

    A row that the database refuses (it breaks a constraint) does not take its neighbours with
    it: the batch is halved until the row stands alone. Every other error is the caller's to
    retry, with ``retried=True`` from then on.
    """
    try:
        leases = set(await db.fetch(FINALIZE, parameters(batch)))
    except (DataError, IntegrityError):
        if len(batch) == 1:
            return Written([], [], [], [], list(batch))
        middle = len(batch) // 2
        left = await finalize(db, batch[:middle], retried=retried)
        right = await finalize(db, batch[middle:], retried=retried)
        return Written(*(one + other for one, other in zip(left, right, strict=True)))
    written = [settled for settled in batch if settled.message.lease in leases]
    missing = [settled for settled in batch if settled.message.lease not in leases]
    if missing and retried:
        return await _explain(db, written, missing)
    return Written(written, missing, [], [], [])


async def _explain(db: Database, written: list[Settled], missing: list[Settled]) -> Written:
    rows = await db.fetch(EXPLAIN_UNWRITTEN, {"ids": bigints(s.message.id for s in missing)})
    found = {row_id: (version, status) for row_id, version, status in rows}
    result = Written(written, [], [], [], [])
    for settled in missing:
        version, status = found.get(settled.message.id, (None, None))
        if version is None:
            result.unknown.append(settled)
        elif version == settled.message.lease_version and status != "processing":
            result.already_written.append(settled)
        else:
            result.lost.append(settled)
    return result


def parameters(batch: Sequence[Settled]) -> dict[str, Any]:
    """The batch as six columns."""
    rows = [as_row(settled) for settled in batch]
    return {
        "ids": bigints(settled.message.id for settled in batch),
        "versions": bigints(settled.message.lease_version for settled in batch),
        "statuses": [row.status for row in rows],
        "delays": [row.delay for row in rows],
        "refunds": [row.refund for row in rows],
        "errors": [row.error for row in rows],
    }


DONE = Row("done", None, 0, None)


def as_row(settled: Settled) -> Row:
    """What the transition means in columns. A dead row's available_at says since when."""
    match settled.transition:
        case Finish():
            return DONE
        case Retry(delay, error):
            return Row("pending", delay, 0, clean(error))
        case DeferUntil(delay, error):
            return Row("pending", delay, 1, clean(error))
        case Release(delay, error):
            return Row("pending", delay, 1, None if error is None else clean(error))
        case Bury(error):
            return Row("dead", 0.0, 0, clean(error))
        case _:
            assert_never(settled.transition)


def clean(error: str) -> str:
    """Text that PostgreSQL takes: no NUL, no lone surrogate, at most 2,000 characters."""
    text = error[:MAX_ERROR_CHARACTERS].replace("\x00", "\N{REPLACEMENT CHARACTER}")
    return text.encode("utf-8", "replace").decode("utf-8")
