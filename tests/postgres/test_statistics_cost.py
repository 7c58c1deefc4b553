"""Bounded means: whatever the table holds, and whatever the planner knows about it."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import pytest

from pgoutbox.database import statistics
from tests.support.outbox_rows import fill

if TYPE_CHECKING:
    from collections.abc import Callable

    import psycopg

CAP = 100
MOST = 20
"""Index entries of one destination, in caps: each of its counts, and three looks at its lanes."""


class Work(NamedTuple):
    sequential_scans: int
    index_entries: int


def work_of(conn: psycopg.Connection, call: Callable[[], object]) -> Work:
    """What one transaction read of the outbox, by the server's own counters."""
    with conn.transaction():
        before = _counters(conn)
        call()
        after = _counters(conn)
    return Work(*(new - old for old, new in zip(before, after, strict=True)))


def _counters(conn: psycopg.Connection) -> Work:
    row = conn.execute("""
        SELECT pg_stat_get_xact_numscans('outbox'::regclass),
               (SELECT sum(pg_stat_get_xact_tuples_returned(indexrelid))::bigint
                  FROM pg_index WHERE indrelid = 'outbox'::regclass)
    """).fetchone()
    assert row is not None
    return Work(*row)


def big_table(conn: psycopg.Connection) -> None:
    fill(conn, 100_000, status="'done'", pending_since="NULL", done_at="now()")
    fill(conn, 3_000)
    fill(conn, 3_000, available_at="now() + interval '1 hour'", attempts="1")
    fill(conn, 3_000, ordering_key="'k' || g % 7")
    fill(conn, 3_000, status="'dead'", pending_since="NULL", ordering_key="'k'")
    fill(conn, 3_000, status="'processing'", lease_owner="'p'", lease_until="now() - interval '1h'")
    fill(conn, 100, destination="'mail'")


def leased_lanes(conn: psycopg.Connection) -> None:
    # As below: too many lanes for the lock table.
    conn.execute("ALTER TABLE outbox DISABLE TRIGGER zz_outbox_insert")
    leased = {"status": "'processing'", "lease_owner": "'p'", "lease_until": "'2999-01-01Z'"}
    fill(conn, 50_000, ordering_key="'k' || g", **leased)
    fill(conn, 50_000, **leased)
    fill(conn, 50_000, available_at="now() + g * interval '1 hour'", ordering_key="'later ' || g")
    fill(conn, 50_000, available_at="now() + g * interval '1 hour'")
    fill(conn, 100, destination="'mail'")


def hot_lane_behind_a_dead_head(conn: psycopg.Connection) -> None:
    fill(conn, 1, status="'dead'", pending_since="NULL", ordering_key="'hot'")
    fill(conn, 100_000, ordering_key="'hot'")
    fill(conn, 100, destination="'mail'")


def hot_lane_behind_a_ready_head(conn: psycopg.Connection) -> None:
    fill(conn, 1, ordering_key="'hot'")
    fill(conn, 100_000, ordering_key="'hot'", available_at="now() + interval '1 hour'")
    fill(conn, 100, destination="'mail'")


def blocked_lanes(conn: psycopg.Connection) -> None:
    # The trigger would take a lock for each lane, and the lock table has no room for so many.
    conn.execute("ALTER TABLE outbox DISABLE TRIGGER zz_outbox_insert")
    fill(conn, 100_000, status="'dead'", pending_since="NULL", ordering_key="'k' || g")
    fill(conn, 100_000, ordering_key="'k' || g")
    fill(conn, 100, destination="'mail'")


@pytest.mark.parametrize("analyzed", ["while it was empty", "after it had filled"])
@pytest.mark.parametrize(
    "table",
    [
        big_table,
        leased_lanes,
        hot_lane_behind_a_dead_head,
        hot_lane_behind_a_ready_head,
        blocked_lanes,
    ],
)
def test_the_cost_of_statistics_does_not_grow_with_the_table(
    conn: psycopg.Connection, table: Callable[[psycopg.Connection], None], analyzed: str
) -> None:
    conn.execute("ALTER TABLE outbox SET (autovacuum_enabled = false)")
    conn.execute("ANALYZE outbox")
    table(conn)
    if analyzed == "after it had filled":
        conn.execute("ANALYZE outbox")
    destinations = 2
    counted = work_of(conn, lambda: statistics.read(conn, schema="public", cap=CAP))
    assert counted.sequential_scans == 0
    assert counted.index_entries <= MOST * CAP * destinations
    spread = work_of(
        conn,
        lambda: statistics.attempts_histogram(
            conn, schema="public", destinations=["default", "mail"], cap=CAP
        ),
    )
    assert spread.sequential_scans == 0
    assert spread.index_entries <= CAP * destinations
    named = work_of(
        conn,
        lambda: statistics.blocking(
            conn, schema="public", destinations=["default", "mail"], limit=CAP
        ),
    )
    assert named.sequential_scans == 0
    assert named.index_entries <= CAP * destinations
    newest = work_of(
        conn,
        lambda: statistics.newest_dead(
            conn, schema="public", destinations=["default", "mail"], limit=CAP
        ),
    )
    assert newest.sequential_scans == 0
    assert newest.index_entries <= CAP * destinations
