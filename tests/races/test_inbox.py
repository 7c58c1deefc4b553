"""Two deliveries of one message at the same moment: the second waits for the first."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import timedelta
from typing import Any
from uuid import UUID

import psycopg
import pytest

from pgoutbox import inbox
from tests.support.waiting import until_waiting

ID = UUID("0190b9c0-0000-7000-8000-00000000abcd")


class HandlerError(Exception):
    pass


@pytest.fixture
def effects(conn: psycopg.Connection) -> psycopg.Connection:
    """An observer's connection to a database in which handlers leave a trace."""
    conn.execute("CREATE TABLE effects (handler text)")
    return conn


def handlers(conn: psycopg.Connection[Any]) -> list[str]:
    return [handler for (handler,) in conn.execute("SELECT handler FROM effects")]


def deliver(conn: psycopg.Connection[Any]) -> bool:
    with inbox.first_time(conn, "mailer", ID) as fresh:
        if fresh:
            conn.execute("INSERT INTO effects VALUES ('second')")
    return fresh


@pytest.mark.parametrize("autocommit", [True, False])
@pytest.mark.parametrize("first_succeeds", [True, False])
def test_the_second_waits_and_is_fresh_only_if_the_first_fails(
    effects: psycopg.Connection, dsn: str, *, first_succeeds: bool, autocommit: bool
) -> None:
    with (
        ThreadPoolExecutor(1) as pool,
        psycopg.connect(dsn, autocommit=autocommit) as one,
        psycopg.connect(dsn, autocommit=autocommit) as two,
    ):
        with suppress(HandlerError), inbox.first_time(one, "mailer", ID) as fresh:
            assert fresh
            one.execute("INSERT INTO effects VALUES ('first')")
            second = pool.submit(deliver, two)
            until_waiting(effects, two.info.backend_pid, on="transactionid")
            if not first_succeeds:
                raise HandlerError
        assert second.result() is not first_succeeds
    assert handlers(effects) == ["first" if first_succeeds else "second"]


@pytest.mark.parametrize("first_succeeds", [True, False])
async def test_the_second_waits_on_async_connections_too(
    effects: psycopg.Connection, dsn: str, *, first_succeeds: bool
) -> None:
    async def deliver_second() -> bool:
        async with inbox.first_time(two, "mailer", ID) as fresh:
            if fresh:
                await two.execute("INSERT INTO effects VALUES ('second')")
        return fresh

    async with (
        await psycopg.AsyncConnection.connect(dsn) as one,
        await psycopg.AsyncConnection.connect(dsn) as two,
    ):
        with suppress(HandlerError):
            async with inbox.first_time(one, "mailer", ID) as fresh:
                assert fresh
                await one.execute("INSERT INTO effects VALUES ('first')")
                second = asyncio.create_task(deliver_second())
                pid = two.info.backend_pid
                await asyncio.to_thread(until_waiting, effects, pid, on="transactionid")
                if not first_succeeds:
                    raise HandlerError
        assert await second is not first_succeeds
    assert handlers(effects) == ["first" if first_succeeds else "second"]


def test_other_consumers_and_other_messages_do_not_wait(
    effects: psycopg.Connection, dsn: str
) -> None:
    with (
        psycopg.connect(dsn, options="-c lock_timeout=5s") as other,
        inbox.first_time(effects, "mailer", ID),
    ):
        with inbox.first_time(other, "printer", ID) as fresh:
            assert fresh
        with inbox.first_time(other, "mailer", UUID(int=1)) as fresh:
            assert fresh


def test_a_prune_skips_what_another_prune_is_deleting(conn: psycopg.Connection, dsn: str) -> None:
    conn.execute(
        "INSERT INTO outbox_inbox SELECT 'mailer', gen_random_uuid(), now() - n * interval '1 day' "
        "FROM generate_series(10, 19) n"
    )
    age = timedelta(days=1)
    with (
        psycopg.connect(dsn) as one,
        psycopg.connect(dsn, options="-c lock_timeout=5s") as two,
    ):
        assert inbox.prune_receipts(one, age, limit=4) == 4
        assert inbox.prune_receipts(two, age, limit=100) == 6
