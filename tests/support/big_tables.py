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
    """Finished messages."""
    with psycopg.connect(dsn, autocommit=True) as conn:
        done = {"status": "'done'", "pending_since": "NULL", "done_at": "now() - interval '1 hour'"}
        fill(conn, count, **done, **SAME_ID)


def _burden(dsn: str) -> None:
    """Messages in backoff, and those that another destination's workers have left behind."""
    with psycopg.connect(dsn, autocommit=True) as conn:
        put = partial(fill, conn, 100_000, **SAME_ID)
        put(available_at="now() + interval '1 day'", attempts="1")
        put(destination="'slow'", available_at="now() + interval '1 day'", attempts="1")
        put(destination="'other'", **OVER)


def _work(dsn: str) -> None:
    """What there is to do for the destination ``default``."""
    with psycopg.connect(dsn, autocommit=True) as conn:
        fill(conn, READY)
        fill(conn, HELD, **LIVE)
        fill(conn, EXPIRED, **OVER)
        fill(conn, SUSPECTS, **OVER | {"attempts": "3", "reclaims": "2"})
        fill(conn, SPENT, **OVER | {"attempts": str(MAX_ATTEMPTS)})
        fill(conn, 200, ordering_key="'k' || g % 7")
        if conn.execute("SELECT FROM outbox WHERE status = 'done' LIMIT 1").rowcount == 0:
            fill(
                conn, READY, status="'done'", pending_since="NULL", done_at="now() - interval '1h'"
            )
