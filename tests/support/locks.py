"""Sessions with a worker's settings whose transactions the test ends, and proof of who waits.

The product's own functions run on them, so that a race is between what is shipped.
"""

from __future__ import annotations

import contextlib
import time
from typing import TYPE_CHECKING, Any

import psycopg
from psycopg.rows import tuple_row

from pgoutbox.database.conninfo import DatabaseOptions, conninfo
from pgoutbox.database.pool import Database
from tests.support.roles import as_worker

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from psycopg.rows import AsyncRowFactory

PATIENCE = 20.0
STATEMENT_TIMEOUT = 20.0
"""Seconds: longer than any wait in a race, so that a wait that never ends is an error."""


class Session(Database):
    """One connection instead of a pool. Outside `transaction` every statement commits itself."""

    def __init__(self, options: DatabaseOptions, conn: psycopg.AsyncConnection[Any]) -> None:
        super().__init__(options)
        self.conn = conn

    @property
    def pid(self) -> int:
        return self.conn.info.backend_pid

    def transaction(self) -> contextlib.AbstractAsyncContextManager[psycopg.AsyncTransaction]:
        """Keep the locks of the statements within until its end."""
        return self.conn.transaction()

    @contextlib.asynccontextmanager
    async def _cursor(self, row_factory: AsyncRowFactory[Any] | None) -> Any:
        async with self.conn.cursor(binary=True, row_factory=row_factory or tuple_row) as cursor:
            yield cursor


def worker_options(dsn: str) -> DatabaseOptions:
    """The options of a worker, apart from its patience."""
    return DatabaseOptions(dsn=lambda: dsn, statement_timeout=STATEMENT_TIMEOUT)


@contextlib.asynccontextmanager
async def open_session(dsn: str, *, as_given: bool = False) -> AsyncIterator[Session]:
    """A session as the worker's pool would open it, prepared statements included.

    ``as_given``: with the user of the DSN, for those who also do what workers may not.
    """
    options = worker_options(dsn if as_given else as_worker(dsn))
    async with await psycopg.AsyncConnection.connect(
        conninfo(options, session_settings=True), autocommit=True, prepare_threshold=0
    ) as conn:
        yield Session(options, conn)


async def until_blocked(
    observer: psycopg.AsyncConnection[Any], waiter: Session, *, by: Session
) -> None:
    """Return once the server says that one session waits for a lock of the other one."""
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        cursor = await observer.execute(
            "SELECT %s = ANY (pg_blocking_pids(%s))", [by.pid, waiter.pid]
        )
        row = await cursor.fetchone()
        if row is not None and row[0]:
            return
    raise AssertionError(f"session {waiter.pid} did not wait for session {by.pid}")


# What a test lets wait calls this: until the one who holds the lock alone lets go of it.
GATE = b"""
CREATE SCHEMA gated;
GRANT USAGE ON SCHEMA gated TO PUBLIC;
CREATE FUNCTION gated.wait() RETURNS void LANGUAGE sql AS
    'SELECT pg_advisory_xact_lock_shared(20240817)';
CREATE FUNCTION gated.now() RETURNS timestamptz LANGUAGE plpgsql VOLATILE AS
    'BEGIN PERFORM gated.wait(); RETURN pg_catalog.now(); END';
CREATE FUNCTION gated.before_update() RETURNS trigger LANGUAGE plpgsql AS
    'BEGIN PERFORM gated.wait(); RETURN NEW; END';
"""


@contextlib.asynccontextmanager
async def gate(dsn: str) -> AsyncIterator[Session]:
    """Shut for the length of the block; the session keeps it shut."""
    async with open_session(dsn, as_given=True) as session:
        await session.conn.execute(GATE, prepare=False)
        await session.conn.execute("SELECT pg_advisory_lock(20240817)")
        yield session


async def read_clock_at_gate(session: Session) -> None:
    """Its statements wait where they first read the clock: after their snapshot was taken.

    What is committed until the gate opens is news to them.
    """
    await session.conn.execute("SET search_path = gated, pg_catalog, public")


async def write_second_row_at_gate(conn: psycopg.AsyncConnection[Any]) -> None:
    """Whoever writes to a row of the aggregate ``o-2`` waits with all locks that it has by then."""
    await conn.execute(
        "CREATE TRIGGER gated BEFORE UPDATE ON outbox FOR EACH ROW"
        " WHEN (OLD.aggregate_id = 'o-2') EXECUTE FUNCTION gated.before_update()"
    )
