"""What the outbox holds, in counts and ages: for `pgoutbox status`, the exporter and the operator.

Bounded whatever the table holds: `outbox_stats` stops each count at its cap, and a role that may
call nothing else can read it.
"""

from __future__ import annotations

from dataclasses import MISSING, dataclass, fields
from typing import TYPE_CHECKING, Any

from psycopg import sql
from psycopg.rows import scalar_row, tuple_row

from pgoutbox.errors import MigrationError

if TYPE_CHECKING:
    from collections.abc import Mapping

    import psycopg

DEFAULT_CAP = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class DestinationStatistics:
    """One destination's messages. Counts that reach the cap mean "at least"; ages in seconds."""

    ready: int
    """Pending and due, and in a lane with nothing before it that is not: can be claimed now."""
    waiting: int
    """Due in a lane, behind a message that is dead, leased or not yet due."""
    scheduled: int
    """Pending and not due: scheduled by the producer, in backoff, or deferred."""
    processing: int
    expired: int
    """Processing with a lease that has run out: to be reclaimed or reaped."""
    dead: int
    ready_lanes: int
    """A lane is what the messages with one ordering key form: those whose first message can be
    claimed now, or reclaimed."""
    blocked_lanes: int
    """Lanes that a dead message blocks."""
    oldest_pending_age: float
    """Since when the oldest undelivered message is owed, backoff included. 0 when none is."""
    oldest_ready_age: float
    """Since when the oldest ready message is due; of lanes, the first counts. 0 when none is."""
    oldest_blocked_age: float
    """How long ago the oldest message died that still blocks its lane. 0 when none does."""
    ready_unordered: int | None = None
    """Of the ready ones, those without an ordering key. None, as the rest of these, where the
    schema is older than migration 0006."""
    processing_unordered: int | None = None
    processing_lanes: int | None = None
    """Lanes of which something is under a lease that is in force."""
    next_due_in: float | None = None
    """Seconds until the first of the scheduled ones is due; None when there is none."""

    @property
    def undelivered(self) -> int:
        """All that a worker still has to do."""
        return self.ready + self.waiting + self.scheduled + self.processing


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerStatistics:
    """One worker's last heartbeat."""

    owner: str
    incarnation: str
    version: str
    state: str
    slots: int
    """Messages that it may hold at the same time."""
    busy: int
    """Messages that it held: waiting to be published, being published, or to be recorded."""
    counters: Mapping[str, Any]
    destinations: Mapping[str, Any]
    """What it says about each destination that it serves, keyed by name."""
    started_at: str
    """ISO 8601."""
    seen_age: float
    """Seconds since the heartbeat, by the database's clock."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Statistics:
    """One look at the whole outbox, from one snapshot."""

    at: float
    """Seconds since the epoch, by the database's clock."""
    cap: int
    destinations: Mapping[str, DestinationStatistics]
    """Only those with something pending, processing or dead."""
    workers: tuple[WorkerStatistics, ...]

    def unserved(self, *, within: float) -> list[str]:
        """Destinations with undelivered messages that no worker seen ``within`` seconds claims for.

        Empty while a live worker does not name its destinations, since it may serve any.
        """
        live = [w for w in self.workers if w.seen_age <= within and w.state == "running"]
        if any(not worker.destinations for worker in live):
            return []
        served = {name for worker in live for name in worker.destinations}
        return sorted(
            name
            for name, counts in self.destinations.items()
            if counts.undelivered and name not in served
        )


def read(conn: psycopg.Connection[Any], *, schema: str, cap: int = DEFAULT_CAP) -> Statistics:
    """One call of ``outbox_stats``."""
    with conn.cursor(row_factory=scalar_row) as cursor:
        return parse(cursor.execute(_stats(schema), [cap]).fetchone() or {})


async def read_async(
    conn: psycopg.AsyncConnection[Any], *, schema: str, cap: int = DEFAULT_CAP
) -> Statistics:
    """As `read`."""
    async with conn.cursor(row_factory=scalar_row) as cursor:
        await cursor.execute(_stats(schema), [cap])
        return parse(await cursor.fetchone() or {})


def parse(answer: Mapping[str, Any]) -> Statistics:
    """Make it from what ``outbox_stats`` returned. What a newer schema added is left out.

    Raises MigrationError for the answer of an older one.
    """
    return Statistics(
        at=answer["at"],
        cap=answer["cap"],
        destinations={
            name: DestinationStatistics(**_fields_of(DestinationStatistics, counts))
            for name, counts in sorted(answer["destinations"].items())
        },
        workers=tuple(
            WorkerStatistics(**_fields_of(WorkerStatistics, worker)) for worker in answer["workers"]
        ),
    )


def attempts_histogram(
    conn: psycopg.Connection[Any],
    *,
    schema: str,
    destinations: list[str],
    cap: int = DEFAULT_CAP,
) -> dict[str, dict[int, int]]:
    """Undelivered messages by attempts, over the ``cap`` oldest of each destination.

    Reads rows, so unlike `read` it needs SELECT on the table.
    """
    histogram: dict[str, dict[int, int]] = {name: {} for name in destinations}
    with conn.cursor(row_factory=tuple_row) as cursor:
        cursor.execute(_attempts(schema), [destinations, cap])
        for destination, attempts, count in cursor:
            histogram[destination][attempts] = count
    return histogram


def blocking(
    conn: psycopg.Connection[Any], *, schema: str, destinations: list[str], limit: int = 3
) -> dict[str, list[int]]:
    """The ids of the dead messages that have blocked their lanes for longest, ``limit`` of each.

    Only destinations that have some. Reads rows, as `attempts_histogram`.
    """
    return _numbers(conn, _blocking(schema), destinations, limit)


def newest_dead(
    conn: psycopg.Connection[Any], *, schema: str, destinations: list[str], limit: int = 3
) -> dict[str, list[int]]:
    """The greatest ids of dead messages, ``limit`` of each destination that has some.

    Whether they block a lane or not. Reads rows, as `attempts_histogram`.
    """
    return _numbers(conn, _newest_dead(schema), destinations, limit)


def _numbers(
    conn: psycopg.Connection[Any], question: sql.Composed, destinations: list[str], limit: int
) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    with conn.cursor(row_factory=tuple_row) as cursor:
        cursor.execute(question, [destinations, limit])
        for destination, number in cursor:
            found.setdefault(destination, []).append(number)
    return found


def _stats(schema: str) -> sql.Composed:
    return sql.SQL("SELECT {}(%s::integer)").format(sql.Identifier(schema, "outbox_stats"))


def _attempts(schema: str) -> sql.Composed:
    # The sort is that of outbox_pending, so each destination is the beginning of one index range
    # and never a walk through the finished rows.
    return sql.SQL("""\
SELECT x.destination, x.attempts, count(*)
  FROM unnest(%s::text[]) AS d(name)
 CROSS JOIN LATERAL (
       SELECT o.destination, o.attempts
         FROM {} o
        WHERE o.destination = d.name AND o.pending_since IS NOT NULL
        ORDER BY o.pending_since
        LIMIT %s::integer) x
 GROUP BY x.destination, x.attempts
 ORDER BY x.destination, x.attempts
""").format(sql.Identifier(schema, "outbox"))


def _blocking(schema: str) -> sql.Composed:
    # The beginning of each destination's range of outbox_blocked.
    return sql.SQL("""\
SELECT x.destination, x.id
  FROM unnest(%s::text[]) AS d(name)
 CROSS JOIN LATERAL (
       SELECT o.destination, o.id, o.available_at
         FROM {} o
        WHERE o.destination = d.name AND o.status = 'dead'
          AND o.ordering_key IS NOT NULL AND o.done_at IS NULL
        ORDER BY o.available_at, o.id
        LIMIT %s::integer) x
 ORDER BY x.destination, x.available_at, x.id
""").format(sql.Identifier(schema, "outbox"))


def _newest_dead(schema: str) -> sql.Composed:
    # The end of each destination's range of outbox_dead.
    return sql.SQL("""\
SELECT x.destination, x.id
  FROM unnest(%s::text[]) AS d(name)
 CROSS JOIN LATERAL (
       SELECT o.destination, o.id
         FROM {} o
        WHERE o.destination = d.name AND o.status = 'dead'
        ORDER BY o.id DESC
        LIMIT %s::integer) x
 ORDER BY x.destination, x.id DESC
""").format(sql.Identifier(schema, "outbox"))


def _fields_of(kind: type, given: Mapping[str, Any]) -> dict[str, Any]:
    optional = {field.name: field.default for field in fields(kind) if field.default is not MISSING}
    try:
        return optional | {
            field.name: given[field.name]
            for field in fields(kind)
            if field.name in given or field.name not in optional
        }
    except KeyError as missing:
        raise MigrationError(
            "the outbox of this database is older than this pgoutbox (its statistics say nothing"
            f" of {missing}): run `pgoutbox migrate`"
        ) from None
