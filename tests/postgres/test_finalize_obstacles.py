"""A row that its own trigger keeps from being written, whatever the trigger runs into."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from pgoutbox.database.pool import Database
from pgoutbox.dispatch.finalize import FINALIZE, finalize
from pgoutbox.dispatch.finalizer import Finalizer
from pgoutbox.dispatch.flight import InFlight
from pgoutbox.events import DatabaseFailed, Finalized
from pgoutbox.outcome import Finish
from tests.support.dispatching import (
    Events,
    Scripted,
    claimed,
    database,
    dispatching,
    settled,
    statuses,
    to,
)
from tests.support.outbox_rows import fill, insert

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from pgoutbox.events import Settled

HOLD = "SELECT FROM ledger FOR UPDATE"
WAITS = "PERFORM FROM ledger FOR UPDATE;"
DISK_FULL = "RAISE 'no space left' USING ERRCODE = '53100';"
NO_WAIT = "PERFORM FROM ledger FOR UPDATE NOWAIT;"
SLEEPS = "PERFORM pg_sleep(60);"


def obstacle(conn: psycopg.Connection[Any], body: str, when: str) -> None:
    """Run this for every such row that becomes done."""
    conn.execute(
        "CREATE TABLE ledger AS SELECT 1 AS id;"
        "CREATE FUNCTION obstruct() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER AS"
        f" $$BEGIN {body} RETURN NEW; END$$;"
        "CREATE TRIGGER obstruct BEFORE UPDATE ON outbox FOR EACH ROW"
        f" WHEN (NEW.status = 'done' AND {when}) EXECUTE FUNCTION obstruct()".encode()
    )


async def some(db: Database, conn: psycopg.Connection[Any], count: int) -> list[Settled]:
    """Messages that are to be marked done."""
    fill(conn, count)
    return [settled(message, Finish()) for message in await claimed(db, count=count)]


@asynccontextmanager
async def finalizing(db: Database, events: Events) -> AsyncIterator[Finalizer]:
    """A finalizer at work, alone."""
    finalizer = Finalizer(db, InFlight(999), events)
    task = asyncio.create_task(finalizer.run())
    try:
        yield finalizer
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


def counting(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many rows each finalize is for, from now on."""
    sizes: list[int] = []
    fetch = Database.fetch

    async def counted(db: Database, statement: bytes, *args: Any, **kwargs: Any) -> Any:
        if statement == FINALIZE:
            sizes.append(len(args[0]["errors"]))
        return await fetch(db, statement, *args, **kwargs)

    monkeypatch.setattr(Database, "fetch", counted)
    return sizes


@pytest.mark.parametrize("body", [WAITS, DISK_FULL, NO_WAIT])
async def test_a_row_whose_trigger_fails_keeps_no_other_one_from_being_done(
    dsn: str, conn: psycopg.Connection, body: str
) -> None:
    obstacle(conn, body, "NEW.destination = 'default'")
    stuck = insert(conn)
    fill(conn, 20, destination="'other'")
    with psycopg.connect(dsn) as other:
        other.execute(HOLD)
        async with dispatching(dsn, to(Scripted()), to(Scripted(), "other")) as running:
            await running.events.finished(20)
            for number in range(3):
                fill(conn, 5, destination="'other'")
                await running.events.finished(25 + 5 * number)
            assert statuses(conn) == {"done": 35, "processing": 1}
            conn.execute("DROP TRIGGER obstruct ON outbox")
            other.rollback()
            await running.events.finished(36)
            assert len(running.dispatcher.in_flight) == 0
    for event in running.events.of(Finalized):
        assert (event.lost, event.refused) == ([], [])
    told = [event.error for event in running.events.of(DatabaseFailed)]
    assert any(f"id {stuck}" in error and "tried again" in error for error in told)


@pytest.mark.parametrize("body", [WAITS, DISK_FULL, NO_WAIT])
async def test_one_such_row_is_found_among_many(
    dsn: str, db: Database, conn: psycopg.Connection, body: str
) -> None:
    batch = await some(db, conn, 500)
    bad = batch[333]
    obstacle(conn, body, f"NEW.id = {bad.message.id}")
    with psycopg.connect(dsn) as other:
        other.execute(HOLD)
        result = await finalize(db, batch, retried=False, patience=0.05)
    assert [each.settled for each in result.stuck] == [bad]
    assert (len(result.written), result.locked, result.lost, result.refused) == (499, [], [], [])


async def test_beside_such_a_row_a_locked_one_is_still_told_apart(
    dsn: str, db: Database, conn: psycopg.Connection
) -> None:
    batch = await some(db, conn, 20)
    bad, locked = batch[3], batch[14]
    obstacle(conn, WAITS, f"NEW.id = {bad.message.id}")
    with psycopg.connect(dsn) as other:
        other.execute(HOLD)
        other.execute("SELECT FROM outbox WHERE id = %s FOR UPDATE", [locked.message.id])
        result = await finalize(db, batch, retried=False, patience=0.05)
    assert ([each.settled for each in result.stuck], result.locked) == ([bad], [locked])
    assert len(result.written) == 18


async def test_a_row_that_always_runs_into_the_statement_timeout_holds_up_none_for_long(
    dsn: str, conn: psycopg.Connection
) -> None:
    events = Events()
    async with database(dsn, statement_timeout=0.2) as db:
        batch = await some(db, conn, 30)
        slow, early, late = batch[0], batch[1:20], batch[20:]
        obstacle(conn, SLEEPS, f"NEW.id = {slow.message.id}")
        async with finalizing(db, events) as finalizer:
            finalizer.add(slow)
            await events.seen(DatabaseFailed)
            for each in early:
                finalizer.add(each)
            await events.finished(19)
            for each in late:
                finalizer.add(each)
            await events.finished(29)
            assert statuses(conn) == {"done": 29, "processing": 1}
            conn.execute("DROP TRIGGER obstruct ON outbox")
            async with asyncio.timeout(10):
                await finalizer.idle()
    assert statuses(conn) == {"done": 30}


async def test_one_slow_row_in_a_large_batch_is_left_over_in_the_end(
    dsn: str, conn: psycopg.Connection
) -> None:
    events = Events()
    async with database(dsn, statement_timeout=0.2) as db:
        batch = await some(db, conn, 60)
        obstacle(conn, SLEEPS, f"NEW.id = {batch[0].message.id}")
        async with finalizing(db, events) as finalizer:
            for each in batch:
                finalizer.add(each)
            await events.finished(59)
    assert statuses(conn) == {"done": 59, "processing": 1}


async def test_the_rows_among_many_slow_ones_are_all_written_in_the_end(
    dsn: str, conn: psycopg.Connection
) -> None:
    events = Events()
    async with database(dsn, statement_timeout=0.1) as db:
        batch = await some(db, conn, 12)
        obstacle(conn, SLEEPS, "NEW.id % 4 = 0")
        async with finalizing(db, events) as finalizer:
            for each in batch:
                finalizer.add(each)
            await events.finished(9)
    assert statuses(conn) == {"done": 9, "processing": 3}


async def test_what_befalls_every_row_does_not_take_the_batch_to_pieces(
    db: Database, conn: psycopg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    batch = await some(db, conn, 400)
    obstacle(conn, DISK_FULL, "true")
    sizes = counting(monkeypatch)
    result = await finalize(db, batch, retried=False)
    assert {each.settled.message.id for each in result.stuck} == {s.message.id for s in batch}
    assert len(sizes) < 40


async def test_a_standby_is_found_out_without_taking_the_batch_to_pieces(
    dsn: str, db: Database, conn: psycopg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    batch = await some(db, conn, 100)
    sizes = counting(monkeypatch)
    standby = make_conninfo(dsn, options="-c default_transaction_read_only=on")
    async with database(standby) as read_only:
        with pytest.raises(psycopg.errors.ReadOnlySqlTransaction):
            await finalize(read_only, batch, retried=False)
    assert sizes == [100, 0]


@pytest.mark.parametrize("error", [psycopg.errors.AdminShutdown, psycopg.errors.ConnectionFailure])
async def test_a_server_that_went_away_is_not_asked_about_single_rows(
    db: Database,
    conn: psycopg.Connection,
    monkeypatch: pytest.MonkeyPatch,
    error: type[psycopg.OperationalError],
) -> None:
    batch = await some(db, conn, 10)
    obstacle(conn, f"RAISE 'gone' USING ERRCODE = '{error.sqlstate}';", "true")
    sizes = counting(monkeypatch)
    with pytest.raises(error):
        await finalize(db, batch, retried=False)
    assert sizes == [10]


async def test_a_table_that_is_locked_as_a_whole_is_waited_for_with_the_whole_batch(
    dsn: str, conn: psycopg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    events = Events()
    async with database(dsn, statement_timeout=0.2) as db:
        batch = await some(db, conn, 8)
        sizes = counting(monkeypatch)
        async with finalizing(db, events) as finalizer:
            with psycopg.connect(dsn) as other:
                other.execute("LOCK TABLE outbox IN EXCLUSIVE MODE")
                for each in batch:
                    finalizer.add(each)
                await events.seen(DatabaseFailed, 2)
            async with asyncio.timeout(10):
                await finalizer.idle()
    assert set(sizes) == {8, 0}
    assert statuses(conn) == {"done": 8}
