"""Messages that leave the outbox as they are finished, against everything that wants their rows."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import psycopg
import pytest
from psycopg import errors

from pgoutbox.dispatch.finalize import finalize
from pgoutbox.dispatch.renew import renew
from pgoutbox.dispatch.retention import archive_kept, expire_archive, prepare_archive, prune
from pgoutbox.dispatch.sweep import reap
from pgoutbox.outcome import Retry
from tests.support.leases import (
    DESTINATION,
    LIMIT,
    claim_as,
    enqueue,
    expire,
    reclaim_as,
    settle,
    state_of,
)
from tests.support.locks import Session, until_blocked

if TYPE_CHECKING:
    from pgoutbox.dispatch.finalize_statements import Mode

LEAVING: list[Mode] = ["delete", "archive"]
ADD_OLD_DAY = """
DO $$ BEGIN EXECUTE format(
    'CREATE TABLE old_day PARTITION OF outbox_archive FOR VALUES FROM (%L) TO (%L)',
    date_trunc('day', now(), 'UTC') - interval '216 hours',
    date_trunc('day', now(), 'UTC') - interval '192 hours');
    ALTER TABLE old_day OWNER TO outbox_owner;
END $$
"""


@pytest.fixture(autouse=True)
async def prepared(aconn: psycopg.AsyncConnection) -> None:
    await aconn.execute("SELECT outbox_archive_prepare()")


async def ids(conn: psycopg.AsyncConnection[Any], table: bytes = b"outbox") -> list[int]:
    cursor = await conn.execute(b"SELECT id FROM " + table + b" ORDER BY id")
    return [row_id for (row_id,) in await cursor.fetchall()]


@pytest.mark.parametrize("mode", LEAVING)
async def test_a_message_that_is_renewed_meanwhile_still_leaves(
    aconn: psycopg.AsyncConnection, one: Session, two: Session, mode: Mode
) -> None:
    await enqueue(aconn, 3)
    messages = await claim_as("a", one, 3)
    async with one.transaction():
        await renew(one, messages, lease=60.0)
        late = asyncio.create_task(finalize(two, settle(messages), retried=False, retention=mode))
        await until_blocked(aconn, two, by=one)
    written = await late
    assert (written.written, written.kept) == (settle(messages), [])
    assert await ids(aconn) == []
    assert await ids(aconn, b"outbox_archive") == ([1, 2, 3] if mode == "archive" else [])


@pytest.mark.parametrize("mode", LEAVING)
async def test_a_message_that_is_reclaimed_meanwhile_stays_with_its_new_owner(
    aconn: psycopg.AsyncConnection, one: Session, two: Session, mode: Mode
) -> None:
    await enqueue(aconn, 2)
    messages = await claim_as("a", one, 2)
    await expire(aconn, messages[:1])
    async with one.transaction():
        assert len(await reclaim_as("b", one)) == 1
        late = asyncio.create_task(finalize(two, settle(messages), retried=False, retention=mode))
        await until_blocked(aconn, two, by=one)
    written = await late
    assert (written.lost, written.written) == (settle(messages[:1]), settle(messages[1:]))
    assert await ids(aconn) == [1]
    assert await ids(aconn, b"outbox_archive") == ([2] if mode == "archive" else [])


@pytest.mark.parametrize("mode", LEAVING)
async def test_nobody_takes_what_is_about_to_leave(
    aconn: psycopg.AsyncConnection, one: Session, two: Session, mode: Mode
) -> None:
    await enqueue(aconn, 2)
    messages = await claim_as("a", one, 2)
    await expire(aconn, messages, attempts=LIMIT)
    async with one.transaction():
        await finalize(one, settle(messages), retried=False, retention=mode)
        assert not await reap(two, {DESTINATION: LIMIT})
        assert await reclaim_as("b", two) == []
        assert await prune(two, keep=timedelta(0), limit=10) == 0
    assert await ids(aconn) == []


@pytest.mark.parametrize("mode", LEAVING)
async def test_what_leaves_comes_back_whole_when_the_transaction_is_rolled_back(
    aconn: psycopg.AsyncConnection, one: Session, mode: Mode
) -> None:
    await enqueue(aconn, 2)
    messages = await claim_as("a", one, 2)
    batch = [*settle(messages[:1]), *settle(messages[1:], Retry(0.0, "e"))]
    async with one.transaction():
        await finalize(one, batch, retried=False, retention=mode)
        raise psycopg.Rollback
    for message in messages:
        state = await state_of(aconn, message)
        assert state is not None
        assert state.status == "processing"
    assert await ids(aconn, b"outbox_archive") == []


@pytest.mark.parametrize("mode", LEAVING)
async def test_two_finalizes_of_one_message_let_it_leave_once(
    aconn: psycopg.AsyncConnection, one: Session, two: Session, mode: Mode
) -> None:
    await enqueue(aconn)
    batch = settle(await claim_as("a", one))
    async with one.transaction():
        await finalize(one, batch, retried=False, retention=mode)
        again = asyncio.create_task(finalize(two, batch, retried=True, retention=mode))
        await until_blocked(aconn, two, by=one)
    assert (await again).unknown == batch
    assert await ids(aconn, b"outbox_archive") == ([1] if mode == "archive" else [])


async def test_finalizes_of_all_modes_in_opposite_orders_never_deadlock(
    aconn: psycopg.AsyncConnection, one: Session, two: Session
) -> None:
    await enqueue(aconn, 300)
    for mode in LEAVING:
        batch = settle(await claim_as("a", one, 100))
        both = await asyncio.gather(
            finalize(one, batch, retried=True, retention=mode),
            finalize(two, batch[::-1], retried=True, retention="keep"),
        )
        for result in both:
            assert len(result.written) + len(result.already_written) + len(result.unknown) == 100
        assert sum(len(result.written) for result in both) == 100


async def test_a_new_day_is_made_while_messages_are_archived(
    aconn: psycopg.AsyncConnection, one: Session, two: Session
) -> None:
    await enqueue(aconn, 2)
    messages = await claim_as("a", one, 2)
    await aconn.execute("DROP TABLE " + await last_day(aconn))
    async with one.transaction():
        await finalize(one, settle(messages[:1]), retried=False, retention="archive")
        await prepare_archive(two)
        result = await finalize(one, settle(messages[1:]), retried=False, retention="archive")
    assert (len(result.written), result.kept) == (1, [])
    assert await ids(aconn, b"outbox_archive") == [1, 2]


async def last_day(conn: psycopg.AsyncConnection[Any]) -> str:
    cursor = await conn.execute("SELECT max(name) FROM outbox_archive_partitions()")
    row = await cursor.fetchone()
    assert row is not None
    name: str = row[0]
    return name


async def test_messages_are_archived_while_a_new_day_is_made(
    aconn: psycopg.AsyncConnection, one: Session, two: Session
) -> None:
    await enqueue(aconn)
    batch = settle(await claim_as("a", two))
    await aconn.execute("DROP TABLE " + await last_day(aconn))
    async with one.transaction():
        await prepare_archive(one)
        result = await finalize(two, batch, retried=False, retention="archive")
    assert (result.written, result.kept) == (batch, [])
    assert await ids(aconn, b"outbox_archive") == [1]


async def test_a_message_that_is_archived_while_its_own_day_is_made_stays_until_the_next_round(
    aconn: psycopg.AsyncConnection, one: Session, two: Session
) -> None:
    await enqueue(aconn)
    batch = settle(await claim_as("a", two))
    await aconn.execute(
        "DO $$ BEGIN EXECUTE format('DROP TABLE %I', name)"
        " FROM outbox_archive_partitions() LIMIT 1; END $$"
    )
    async with one.transaction():
        await prepare_archive(one)
        result = await finalize(two, batch, retried=False, retention="archive")
    assert (result.written, result.kept) == (batch, [])
    assert await ids(aconn) == [1]
    assert await archive_kept(two, limit=10) == 1
    assert await ids(aconn, b"outbox_archive") == [1]


async def test_an_old_day_is_dropped_between_two_finalizes_and_neither_fails(
    aconn: psycopg.AsyncConnection, one: Session, two: Session
) -> None:
    await aconn.execute(ADD_OLD_DAY)
    await enqueue(aconn, 2)
    messages = await claim_as("a", one, 2)
    async with one.transaction():
        await finalize(one, settle(messages[:1]), retried=False, retention="archive")
        dropping = asyncio.create_task(expire_archive(two, keep=timedelta(days=7)))
        await until_blocked(aconn, two, by=one)
    with suppress(errors.LockNotAvailable):  # On a machine that is slow today.
        await dropping
    result = await finalize(one, settle(messages[1:]), retried=False, retention="archive")
    assert (len(result.written), result.kept) == (1, [])


async def test_a_drop_that_has_to_wait_gives_up_and_lets_the_finalizes_behind_it_pass(
    aconn: psycopg.AsyncConnection, one: Session, two: Session
) -> None:
    await aconn.execute(ADD_OLD_DAY)
    await enqueue(aconn)
    batch = settle(await claim_as("a", one))
    async with await psycopg.AsyncConnection.connect(aconn.info.dsn) as report:
        await report.execute("SELECT count(*) FROM outbox_archive")
        dropping = asyncio.create_task(expire_archive(two, keep=timedelta(days=7)))
        while True:
            cursor = await aconn.execute("SELECT cardinality(pg_blocking_pids(%s))", [two.pid])
            if await cursor.fetchone() != (0,):
                break
        result = await finalize(one, batch, retried=False, retention="archive")
        with pytest.raises(errors.LockNotAvailable):
            await dropping
    assert (result.written, result.kept) == (batch, [])
    assert await ids(aconn, b"outbox_archive") == [1]


async def test_what_is_being_finalized_is_not_moved_and_is_moved_after_that(
    aconn: psycopg.AsyncConnection, one: Session, two: Session
) -> None:
    await enqueue(aconn, 2)
    batch = settle(await claim_as("a", one, 2))
    async with one.transaction():
        await finalize(one, batch, retried=False)
        assert await archive_kept(two, limit=10) == 0
    async with one.transaction():
        assert await archive_kept(one, limit=10) == 2
        assert await prune(two, keep=timedelta(0), limit=10) is None
        assert await ids(aconn) == [1, 2]
        again = await finalize(two, batch, retried=True, retention="archive")
        assert again.already_written == batch
    assert await ids(aconn) == []
    assert await ids(aconn, b"outbox_archive") == [1, 2]
