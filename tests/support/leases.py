"""Messages under a lease, as one worker or another sees them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from pgoutbox.dispatch.claim import claim
from pgoutbox.dispatch.lanes import Asked, Runs, claim_runs
from pgoutbox.dispatch.reclaim import reclaim, reclaim_heads
from pgoutbox.events import Settled
from pgoutbox.outcome import Finish, Published, Transition

if TYPE_CHECKING:
    from collections.abc import Iterable

    import psycopg

    from pgoutbox.database.pool import Database
    from pgoutbox.message import ClaimedMessage

DESTINATION = "default"
LIMIT = 5
LEASE = 3600.0
"""Seconds: nothing expires by itself while a test runs."""


class State(NamedTuple):
    """What a row says about who may work on it."""

    status: str
    owner: str | None
    version: int
    attempts: int
    reclaims: int


async def enqueue(conn: psycopg.AsyncConnection[Any], count: int = 1) -> None:
    """Insert messages that are due; the earlier id is due first."""
    await conn.execute(
        "INSERT INTO outbox (aggregate_type, aggregate_id, event_type, payload, available_at)"
        " SELECT 'order', 'o-' || g, 'order_paid', '{}',"
        "        now() - interval '1 hour' + g * interval '1 s'"
        " FROM generate_series(1, %s) g",
        [count],
    )


async def enqueue_lane(
    conn: psycopg.AsyncConnection[Any], key: str, count: int = 1, *, due: str = "-1 hour"
) -> list[int]:
    """Insert messages of one lane for the aggregates ``o-1``, ``o-2`` and so on; their ids."""
    cursor = await conn.execute(
        "INSERT INTO outbox"
        " (aggregate_type, aggregate_id, event_type, payload, ordering_key, available_at)"
        " SELECT 'order', 'o-' || g, 'order_paid', '{}', %s, now() + %s::interval"
        " FROM generate_series(1, %s) g RETURNING id",
        [key, due, count],
    )
    return sorted([row_id for (row_id,) in await cursor.fetchall()])


async def claim_as(owner: str, db: Database, count: int = 1) -> list[ClaimedMessage]:
    """Claim what is due."""
    return await claim(db, owner=owner, lease=LEASE, slots={DESTINATION: count})


async def reclaim_as(owner: str, db: Database, count: int = 1) -> list[ClaimedMessage]:
    """Reclaim what has expired, one suspect included."""
    return await reclaim(
        db, owner=owner, lease=LEASE, slots={DESTINATION: (count, LIMIT)}, suspect_allowed=True
    )


async def claim_lanes_as(
    owner: str, db: Database, lanes: int = 10, *, run: int = 10, rows: int = 100, **asked: Any
) -> Runs:
    """Claim runs of lanes; ``asked`` as for `Asked`."""
    wanted = Asked(DESTINATION, lanes=lanes, rows=rows, run=run, **asked)
    return await claim_runs(db, wanted, owner=owner, lease=LEASE)


async def reclaim_heads_as(
    owner: str,
    db: Database,
    lanes: int = 10,
    *,
    suspect_allowed: bool = True,
    held: Iterable[int] = (),
) -> list[ClaimedMessage]:
    """Reclaim the heads of lanes whose lease has expired."""
    return await reclaim_heads(
        db,
        owner=owner,
        lease=LEASE,
        slots={DESTINATION: (lanes, LIMIT)},
        suspect_allowed=suspect_allowed,
        held=held,
    )


async def expire(
    conn: psycopg.AsyncConnection[Any],
    messages: Iterable[ClaimedMessage],
    *,
    attempts: int | None = None,
) -> None:
    """Let the leases end now; ``attempts`` sets how many claims they were."""
    await conn.execute(
        "UPDATE outbox SET lease_until = now() - interval '1 s',"
        " attempts = coalesce(%s::integer, attempts) WHERE id = ANY (%s)",
        [attempts, [message.id for message in messages]],
    )


def settle(
    messages: Iterable[ClaimedMessage], transition: Transition | None = None
) -> list[Settled]:
    """The messages as they come to the finalize; by default all were delivered."""
    return [Settled(message, Published(), transition or Finish(), 0.0, 0.0) for message in messages]


async def state_of(conn: psycopg.AsyncConnection[Any], message: ClaimedMessage) -> State | None:
    """The row as an observer sees it, None where it is gone."""
    cursor = await conn.execute(
        "SELECT status, lease_owner, lease_version, attempts, reclaims FROM outbox WHERE id = %s",
        [message.id],
    )
    row = await cursor.fetchone()
    return None if row is None else State(*row)


async def states_of(conn: psycopg.AsyncConnection[Any], key: str) -> list[State]:
    """All rows with this ordering key as an observer sees them, in order."""
    cursor = await conn.execute(
        "SELECT status, lease_owner, lease_version, attempts, reclaims"
        " FROM outbox WHERE ordering_key = %s ORDER BY id",
        [key],
    )
    return [State(*row) for row in await cursor.fetchall()]


def ids(messages: Iterable[ClaimedMessage]) -> list[int]:
    """Their row ids, in the order of the messages."""
    return [message.id for message in messages]
