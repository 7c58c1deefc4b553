"""One outbox of more than a million messages, under statistics from different times.

Built once per module: most of the rows are what a worker must not pay for.
"""

from __future__ import annotations

import uuid
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import psycopg
from psycopg.conninfo import make_conninfo

from tests.support.outbox_rows import fill

if TYPE_CHECKING:
    from collections.abc import Iterator

READY = 2_500
HELD = 2_000
EXPIRED = 300
SUSPECTS = 20
SPENT = 300
LANES = 450
"""Lanes with ten messages that are due, and as many whose lease expired."""
BLOCKED = 2_000
HOT = 100_000
KEPT = 1_000_000
MAX_ATTEMPTS = 12

LEASED = {"status": "'processing'", "lease_owner": "'p'", "lease_version": "1", "attempts": "1"}
LIVE = {**LEASED, "lease_until": "now() + interval '1 day'"}
OVER = {**LEASED, "lease_until": "now() - interval '1 hour'"}
# Drawing a random id for each of a million rows would take longer than to insert them.
SAME_ID = {"message_id": "'00000000-0000-4000-8000-000000000000'"}


class Tables(NamedTuple):
    """DSNs of databases with the same work to do; the large ones differ in their statistics."""

    small: str
    """Nothing but the work."""
    never: str
    """Analyzed while the table was empty."""
    quiet: str
    """Analyzed when everything was finished and kept."""
    fresh: str
    """Analyzed as it is."""


@contextmanager
def big_tables(server: str, template: str) -> Iterator[Tables]:
    """Build the databases, and drop them afterwards."""
    run = uuid.uuid4().hex[:8]
    names = Tables(*(f"pgoutbox_plans_{name}_{run}" for name in Tables._fields))
    tables = Tables(*(make_conninfo(server, dbname=name) for name in names))
    with (
        psycopg.connect(server, autocommit=True) as admin,
        ThreadPoolExecutor(2) as pool,
    ):

        def copy(source: str, target: str) -> None:
            admin.execute(f"CREATE DATABASE {target} TEMPLATE {source}".encode())

        try:
            copy(template, names.quiet)
            _prepare(tables.quiet)
            copy(names.quiet, names.small)
            list(pool.map(_keep, [tables.quiet] * 2, [KEPT // 2] * 2))
            copy(names.quiet, names.never)
            _analyze(tables.quiet)
            list(pool.map(_burden, [tables.quiet, tables.never]))
            list(pool.map(_work, [tables.quiet, tables.never, tables.small]))
            copy(names.quiet, names.fresh)
            _analyze(tables.fresh)
            yield tables
        finally:
            for name in names:
                admin.execute(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)".encode())


def _prepare(dsn: str) -> None:
    with psycopg.connect(dsn, autocommit=True) as conn:
        conn.execute("ALTER TABLE outbox SET (autovacuum_enabled = false)")
        # Past the range of integer, where ids could be compared as another type.
        conn.execute("SELECT setval(pg_get_serial_sequence('outbox', 'id'), 3000000000)")
    _analyze(dsn)


def _analyze(dsn: str) -> None:
    with psycopg.connect(dsn, autocommit=True) as conn:
        conn.execute("ANALYZE outbox")


def _keep(dsn: str, count: int) -> None:
    """Finished messages, every second one of a lane."""
    with _bulk(dsn) as conn:
        done = {"status": "'done'", "pending_since": "NULL", "done_at": "now() - interval '1 hour'"}
        lanes = {
            "destination": "CASE WHEN g % 2 = 0 THEN 'lanes' ELSE 'default' END",
            "ordering_key": "CASE WHEN g % 2 = 0 THEN 'k' || g % 5000 END",
        }
        fill(conn, count, **done, **lanes, **SAME_ID)


def _burden(dsn: str) -> None:
    """Messages in backoff, and those that another destination's workers have left behind."""
    with _bulk(dsn) as conn:
        put = partial(fill, conn, 100_000, **SAME_ID)
        put(available_at="now() + interval '1 day'", attempts="1")
        put(destination="'slow'", available_at="now() + interval '1 day'", attempts="1")
        put(destination="'other'", **OVER)
        lanes = {"ordering_key": "'k' || g % 20000"}
        put(destination="'slow_lanes'", available_at="now() + interval '1 day'", **lanes)
        put(destination="'other_lanes'", **lanes, **OVER)
        fill(conn, HOT, destination="'hot'", ordering_key="'hot'", **SAME_ID)


def _work(dsn: str) -> None:
    """What there is to do for the destinations ``default`` and ``lanes``."""
    with _bulk(dsn) as conn:
        fill(conn, READY)
        fill(conn, HELD, **LIVE)
        fill(conn, EXPIRED, **OVER)
        fill(conn, SUSPECTS, **OVER | {"attempts": "3", "reclaims": "2"})
        fill(conn, SPENT, **OVER | {"attempts": str(MAX_ATTEMPTS)})
        fill(conn, 200, ordering_key="'k' || g % 7")
        _work_in_lanes(conn)
        if conn.execute("SELECT FROM outbox WHERE status = 'done' LIMIT 1").rowcount == 0:
            fill(
                conn, READY, status="'done'", pending_since="NULL", done_at="now() - interval '1h'"
            )


def _work_in_lanes(conn: psycopg.Connection) -> None:
    put = partial(fill, conn, destination="'lanes'")
    put(count=10 * LANES, ordering_key=f"'ready ' || g % {LANES}")
    put(count=3 * LANES, ordering_key=f"'expired ' || g % {LANES}", **OVER)
    put(count=SUSPECTS, ordering_key="'suspect ' || g", **OVER | {"reclaims": "1"})
    spent = OVER | {"attempts": str(MAX_ATTEMPTS)}
    put(count=3 * SPENT, destination="'spent'", ordering_key=f"'k' || g % {SPENT}", **spent)
    # Each behind a dead one.
    dead = {"status": "'dead'", "pending_since": "NULL"}
    for columns in (dead, {}):
        lane = f"'k' || lpad((g % {BLOCKED})::text, 4, '0')"
        put(count=BLOCKED, destination="'blocked'", ordering_key=lane, **columns)


def _bulk(dsn: str) -> psycopg.Connection:
    """A connection that runs no triggers: more lanes at once than there are locks for them."""
    return psycopg.connect(dsn, autocommit=True, options="-c session_replication_role=replica")
