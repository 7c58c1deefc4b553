"""The pool survives what happens to connections: each call ends, and the next one finds its way."""

from __future__ import annotations

import asyncio
import time
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING

import psycopg
import pytest
from psycopg_pool import PoolTimeout

from pgoutbox.database.conninfo import DatabaseOptions
from pgoutbox.database.pool import DATABASE_ERRORS, Database
from tests.support.observing import eventually
from tests.support.proxy import Proxy
from tests.support.roles import as_worker

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

POOL_MAX = 3
STATEMENT_TIMEOUT = 0.5
LIMIT = 2 * STATEMENT_TIMEOUT + 1.0


@pytest.fixture
def proxy(dsn: str) -> Iterator[Proxy]:
    with Proxy(dsn) as running:
        yield running


@pytest.fixture
async def db(proxy: Proxy) -> AsyncIterator[Database]:
    """A pool whose connections all exist and have nothing to do."""
    async with opened(proxy, STATEMENT_TIMEOUT) as database:
        yield database


@asynccontextmanager
async def opened(proxy: Proxy, statement_timeout: float) -> AsyncIterator[Database]:
    options = DatabaseOptions(
        dsn=lambda: as_worker(proxy.dsn), pool_max=POOL_MAX, statement_timeout=statement_timeout
    )
    database = Database(options)
    await database.probe(accept_anything)
    await database.open()
    await use_all_connections(database)
    yield database
    await database.close(1.0)


async def accept_anything(_conn: psycopg.AsyncConnection[object]) -> None:
    """The schema is not the matter here."""


async def use_all_connections(database: Database) -> None:
    async with asyncio.TaskGroup() as group:
        for _ in range(POOL_MAX):
            group.create_task(database.fetch(b"SELECT pg_sleep(0.2)"))


async def test_a_broken_connection_costs_one_call_even_if_the_others_are_silent(
    db: Database, proxy: Proxy
) -> None:
    # Asking the others whether they live would hang, and lose those that are never asked.
    for number in range(1, POOL_MAX + 1):
        began = time.monotonic()
        lost = proxy.lose_answer(b"doomed")
        doomed = asyncio.create_task(db.fetch(b"SELECT 'doomed', pg_sleep(0.2)"))
        await asyncio.to_thread(proxy.until_count, b"doomed", number)
        proxy.freeze(newcomers=False)
        with pytest.raises(psycopg.OperationalError):
            await doomed
        assert lost.is_set()
        assert time.monotonic() - began < 1.0
        await use_all_connections(db)


async def test_one_silent_connection_is_reason_enough_to_replace_them_all(
    db: Database, proxy: Proxy
) -> None:
    proxy.freeze(newcomers=False)
    began = time.monotonic()
    with pytest.raises(TimeoutError):
        await db.fetch(b"SELECT 1")
    assert time.monotonic() - began < LIMIT + 0.5
    assert await db.fetch(b"SELECT 1") == [(1,)]
    assert time.monotonic() - began < LIMIT + 1.0


async def test_every_call_ends_within_the_limit_while_nothing_answers(
    db: Database, proxy: Proxy
) -> None:
    proxy.freeze()

    async def call() -> float:
        began = time.monotonic()
        with pytest.raises(DATABASE_ERRORS):
            await db.fetch(b"SELECT 1")
        return time.monotonic() - began

    assert max(await asyncio.gather(*(call() for _ in range(2 * POOL_MAX)))) < LIMIT + 0.5


async def test_a_call_that_finds_no_connection_says_why_there_is_none(
    db: Database, proxy: Proxy
) -> None:
    proxy.refuse()
    with pytest.raises(psycopg.OperationalError):
        await db.fetch(b"SELECT 1")
    with pytest.raises(PoolTimeout, match=r"couldn't get a connection .*; connection failed"):
        await db.fetch(b"SELECT 1")


async def test_a_server_that_is_back_is_noticed_within_three_seconds(proxy: Proxy) -> None:
    async with opened(proxy, 5.0) as db:
        proxy.refuse()
        with pytest.raises(DATABASE_ERRORS):
            await db.fetch(b"SELECT 1")
        # The worst case is a call that has to find out first that the pool has given up.
        hopeless = asyncio.create_task(db.fetch(b"SELECT 1"))
        await asyncio.to_thread(
            eventually, lambda: db.stats()["pool_size"] < POOL_MAX, "a connection given up"
        )
        proxy.accept()
        began = time.monotonic()
        with suppress(*DATABASE_ERRORS):
            await hopeless
        await db.fetch(b"SELECT 1")
        assert time.monotonic() - began < 3.0
