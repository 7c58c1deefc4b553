from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING

import psycopg

from pgoutbox.dispatch.finalize import finalize
from pgoutbox.outcome import Finish
from tests.support.dispatching import (
    Scripted,
    claimed,
    database,
    dispatching,
    expire,
    reclaimed,
    row,
    settled,
    statuses,
    to,
)
from tests.support.outbox_rows import fill, insert

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from pgoutbox.database.pool import Database


async def test_four_workers_that_claim_at_once_get_every_row_exactly_once(
    dsn: str, conn: psycopg.Connection
) -> None:
    fill(conn, 200)

    async def claim_all(db: Database, owner: str) -> list[int]:
        ids: list[int] = []
        while batch := await claimed(db, owner=owner, count=7):
            ids += [message.id for message in batch]
        return ids

    async with AsyncExitStack() as stack:
        workers = [await stack.enter_async_context(database(dsn)) for _ in range(4)]
        shares = await asyncio.gather(
            *(claim_all(db, f"worker {number}") for number, db in enumerate(workers))
        )
    ids = [number for share in shares for number in share]
    assert len(ids) == len(set(ids)) == 200
    assert statuses(conn) == {"processing": 200}


async def the_broken_way(
    conn: psycopg.AsyncConnection, publish: Callable[[int], Awaitable[None]]
) -> None:
    """Locks rows, commits (which ends the locks), and only then publishes and writes."""
    async with conn.transaction():
        rows = await (
            await conn.execute(
                "SELECT id FROM outbox WHERE status = 'pending' ORDER BY id"
                " LIMIT 50 FOR UPDATE SKIP LOCKED"
            )
        ).fetchall()
    for (number,) in rows:
        await publish(number)
        await conn.execute(
            "UPDATE outbox SET status = 'done', done_at = now(), pending_since = NULL"
            " WHERE id = %s",
            [number],
        )


async def test_locking_rows_without_leasing_them_publishes_everything_twice(
    dsn: str, conn: psycopg.Connection
) -> None:
    fill(conn, 3)
    published: Counter[int] = Counter()
    first_publishes, second_is_through = asyncio.Event(), asyncio.Event()

    async def slowly(number: int) -> None:
        first_publishes.set()
        await second_is_through.wait()
        published[number] += 1

    async def quickly(number: int) -> None:
        published[number] += 1

    async with (
        await psycopg.AsyncConnection.connect(dsn, autocommit=True) as one,
        await psycopg.AsyncConnection.connect(dsn, autocommit=True) as two,
    ):
        first = asyncio.create_task(the_broken_way(one, slowly))
        await first_publishes.wait()
        await the_broken_way(two, quickly)
        second_is_through.set()
        await first
    assert sorted(published.values()) == [2, 2, 2]


async def test_four_workers_deliver_every_row_exactly_once(
    dsn: str, conn: psycopg.Connection
) -> None:
    fill(conn, 100)
    publisher = Scripted()
    async with AsyncExitStack() as stack:
        for number in range(4):
            await stack.enter_async_context(
                dispatching(dsn, to(publisher, concurrency=7), owner=f"worker {number}")
            )
        await publisher.until(lambda: len(publisher.taken) >= 100)
    assert len({message.id for message in publisher.taken}) == len(publisher.taken) == 100
    assert statuses(conn) == {"done": 100}


async def test_a_crashed_workers_row_is_taken_over_and_its_late_result_changes_nothing(
    dsn: str, conn: psycopg.Connection
) -> None:
    number = insert(conn)
    async with database(dsn) as db:
        [old] = await claimed(db, owner="a")
        assert await claimed(db, owner="b") == []
        assert await reclaimed(db, owner="b") == []
        expire(conn)
        [new] = await reclaimed(db, owner="b")
        assert (new.id, new.lease_version) == (old.id, old.lease_version + 1)
        before = row(conn, number)
        late = await finalize(db, [settled(old, Finish())], retried=False)
        assert (len(late.written), len(late.lost)) == (0, 1)
        assert row(conn, number) == before
        written = await finalize(db, [settled(new, Finish())], retried=False)
        assert len(written.written) == 1
    assert row(conn, number)["status"] == "done"


async def test_an_owner_that_is_late_but_was_not_overtaken_still_gets_its_result_written(
    dsn: str, conn: psycopg.Connection
) -> None:
    number = insert(conn)
    async with database(dsn) as db:
        [message] = await claimed(db)
        expire(conn)
        result = await finalize(db, [settled(message, Finish())], retried=False)
    assert len(result.written) == 1
    assert row(conn, number)["status"] == "done"
