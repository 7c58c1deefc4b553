"""The worker's connections: a pool that survives any outage, and a deadline on every call.

Three layers bound a statement: the server's ``statement_timeout``, the kernel's TCP timeouts for
a peer that has vanished, and a deadline of our own that does not wait for a cancellation to be
delivered.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any, TypeVar

import psycopg
from psycopg import AsyncConnection, IsolationLevel
from psycopg.rows import tuple_row
from psycopg_pool import AsyncConnectionPool, PoolTimeout

from pgoutbox.database.connection import reporting
from pgoutbox.database.conninfo import LOCAL_SETTINGS, DatabaseOptions, conninfo, local_settings
from pgoutbox.database.probes import keeps_options

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine, Mapping

    from psycopg.rows import AsyncRowFactory


T = TypeVar("T")

# What says "try again" and nothing about the statement or its values.
DATABASE_ERRORS = (psycopg.Error, PoolTimeout, TimeoutError, OSError)

# Reconnecting is the caller's rhythm, not the pool's: the pool doubles its pause up to minutes,
# and a database that is back must be noticed within seconds. It gives up at once instead, and
# the next call makes it connect.
RECONNECT_TIMEOUT = 0.5
CONNECTION_TIMEOUT = 1.5
"""Seconds to wait for a connection. Only a new call makes the pool try to connect again."""
MARGIN = 1.0


class Database:
    """Runs one statement at a time, each a transaction of its own."""

    def __init__(self, options: DatabaseOptions) -> None:
        self._options = options
        self._session_settings = options.pooler != "transaction"
        self._pool: AsyncConnectionPool[AsyncConnection[Any]] | None = None
        self._refusal = ""
        """Why the last try to connect failed; empty when it did not."""

    @property
    def behind_pooler(self) -> bool:
        """Whether session settings are out of reach. Known after `probe`."""
        return not self._session_settings

    async def probe(self, check: Callable[[AsyncConnection[Any]], Awaitable[None]]) -> None:
        """Connect once: find out about a pooler, and run ``check`` on the connection.

        Raises `DATABASE_ERRORS` without a server, and whatever ``check`` raises.
        """
        if self._options.pooler == "auto":
            asked = keeps_options(conninfo(self._options, session_settings=False))
            self._session_settings = await bounded(asked, self._limit)
        await bounded(self._check_once(check), self._limit)

    async def _check_once(self, check: Callable[[AsyncConnection[Any]], Awaitable[None]]) -> None:
        async with await AsyncConnection.connect(
            self._conninfo(), autocommit=True, prepare_threshold=None
        ) as conn:
            await check(conn)

    async def open(self) -> None:
        """Open the pool, after `probe`. It connects by and by, and again after any outage."""
        self._pool = AsyncConnectionPool(
            conninfo=self._conninfo,
            connection_class=reporting(self._note_refusal),
            kwargs={
                "autocommit": True,
                # Prepared at the first use; never behind a pooler, where the next statement may
                # meet a server that has not prepared it.
                "prepare_threshold": 0 if self._session_settings else None,
            },
            min_size=min(2, self._options.pool_max),
            max_size=self._options.pool_max,
            reconnect_timeout=RECONNECT_TIMEOUT,
            timeout=min(CONNECTION_TIMEOUT, self._options.statement_timeout),
            max_idle=60.0,
            name="pgoutbox",
            configure=None if self._session_settings else _read_committed,
            open=False,
        )
        await self._pool.open()

    def _conninfo(self) -> str:
        return conninfo(self._options, session_settings=self._session_settings)

    def _note_refusal(self, reason: str) -> None:
        self._refusal = reason

    def stats(self) -> Mapping[str, int]:
        """psycopg_pool's counters: pool_size, pool_available, requests_waiting, ..."""
        return self._pool.get_stats() if self._pool is not None else {}

    async def fetch(
        self,
        statement: bytes,
        parameters: Mapping[str, Any] | None = None,
        *,
        row_factory: AsyncRowFactory[Any] | None = None,
    ) -> list[Any]:
        """Run a statement that returns rows. Raises one of `DATABASE_ERRORS`.

        The answer is not awaited for longer than twice ``statement_timeout`` (a connection, then
        the statement) and a second, even if the cancellation of the call gets stuck.
        """
        return await self._answer(self._fetch(statement, parameters, row_factory))

    async def execute(self, statement: bytes, parameters: Mapping[str, Any] | None = None) -> int:
        """Run a statement for its effect; the number of rows it touched. Raises as `fetch`."""
        return await self._answer(self._execute(statement, parameters))

    @property
    def _limit(self) -> float:
        return 2 * self._options.statement_timeout + MARGIN

    async def _answer(self, call: Coroutine[Any, Any, T]) -> T:
        try:
            return await bounded(call, self._limit)
        except TimeoutError:
            # Not even the server's own timeout was heard of: nobody is there any more.
            await self._replace_connections()
            raise
        except PoolTimeout as error:
            raise PoolTimeout("; ".join(filter(None, (str(error), self._refusal)))) from None

    async def _replace_connections(self) -> None:
        """Let every connection be made anew: what has befallen one has mostly befallen all.

        They are not asked whether they live: a dead one may never answer, and until it does the
        others that are to be asked are missing from the pool.
        """
        if self._pool is not None and not self._pool.closed:
            await self._pool.drain()

    async def _fetch(
        self,
        statement: bytes,
        parameters: Mapping[str, Any] | None,
        row_factory: AsyncRowFactory[Any] | None,
    ) -> list[Any]:
        async with self._cursor(row_factory) as cursor:
            await cursor.execute(statement, parameters)
            rows: list[Any] = await cursor.fetchall()
            return rows

    async def _execute(self, statement: bytes, parameters: Mapping[str, Any] | None) -> int:
        async with self._cursor(None) as cursor:
            await cursor.execute(statement, parameters)
            count: int = cursor.rowcount
            return count

    @contextlib.asynccontextmanager
    async def _cursor(self, row_factory: AsyncRowFactory[Any] | None) -> Any:  # noqa: ANN401 - a cursor of whatever the factory makes
        if self._pool is None:
            raise PoolTimeout("the database has not been reached yet")
        async with self._pool.connection() as conn:
            try:
                if self._session_settings:
                    yield conn.cursor(binary=True, row_factory=row_factory or tuple_row)
                    return
                async with conn.transaction():
                    await conn.execute(LOCAL_SETTINGS, local_settings(self._options))
                    yield conn.cursor(binary=True, row_factory=row_factory or tuple_row)
            except psycopg.OperationalError:
                if conn.broken:
                    await self._replace_connections()
                raise

    async def close(self, timeout: float) -> None:  # noqa: ASYNC109 - the pool's own parameter
        """Close the pool; connections that are still in use are left to the process's exit."""
        if self._pool is not None:
            await bounded(self._pool.close(timeout=timeout), timeout + MARGIN)


async def bounded(call: Coroutine[Any, Any, T] | asyncio.Future[T], seconds: float) -> T:
    """Await the call for at most so long. Raises TimeoutError.

    Unlike `asyncio.timeout` it does not wait until the cancelled call has ended.
    """
    task = asyncio.ensure_future(call)
    try:
        done, _ = await asyncio.wait({task}, timeout=seconds)
    except asyncio.CancelledError:
        _abandon(task)
        raise
    if not done:
        _abandon(task)
        raise TimeoutError(f"the database did not answer within {seconds:g} s")
    return task.result()


def _abandon(task: asyncio.Future[Any]) -> None:
    task.cancel()
    # Whatever it still comes to, nobody waits for it.
    task.add_done_callback(_forget)


def _forget(task: asyncio.Future[Any]) -> None:
    if not task.cancelled():
        task.exception()


async def _read_committed(conn: AsyncConnection[Any]) -> None:
    """For connections whose default cannot be set by an option: each transaction says so."""
    await conn.set_isolation_level(IsolationLevel.READ_COMMITTED)
