"""Rows that cannot be written now, or never, and what becomes of the others."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from pgoutbox.dispatch.finalize import finalize
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
    reclaimed,
    row,
    settled,
    statuses,
    to,
)
from tests.support.outbox_rows import fill, insert

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from pgoutbox.database.pool import Database
    from pgoutbox.events import Settled
    from pgoutbox.message import ClaimedMessage

LOCK = "SELECT FROM outbox WHERE id = ANY (%s) FOR UPDATE"
SHORT = 0.05
"""Seconds of patience."""


@pytest.fixture
async def db(dsn: str) -> AsyncIterator[Database]:
    async with database(dsn, statement_timeout=1.0) as opened:
        yield opened


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


def done(messages: list[ClaimedMessage]) -> list[Settled]:
    return [settled(message, Finish()) for message in messages]


def trigger(conn: psycopg.Connection[Any], body: str, *, each: str) -> None:
    """Run this after every update of the outbox."""
    new = "REFERENCING NEW TABLE AS changed " if each == "STATEMENT" else ""
    conn.execute(
        f"CREATE FUNCTION meddle() RETURNS trigger LANGUAGE plpgsql AS $${body}$$;"
        f"CREATE TRIGGER meddle AFTER UPDATE ON outbox {new}"
        f"FOR EACH {each} EXECUTE FUNCTION meddle()".encode()
    )


async def test_a_locked_row_is_left_alone_and_its_neighbours_are_written(
    dsn: str, db: Database, conn: psycopg.Connection
) -> None:
    fill(conn, 50)
    batch = done(await claimed(db, count=50))
    locked = [batch[17], batch[31]]
    with psycopg.connect(dsn) as other:
        other.execute(LOCK, [[settled.message.id for settled in locked]])
        result = await finalize(db, batch, retried=False, patience=SHORT)
        assert result.locked == locked
        assert (len(result.written), result.lost, result.refused) == (48, [], [])
        again = await finalize(db, locked, retried=True, patience=0.0)
        assert (again.locked, again.lost, again.written) == (locked, [], [])
    assert (await finalize(db, locked, retried=True)).written == locked
    assert statuses(conn) == {"done": 50}


async def test_beside_a_locked_row_each_other_one_is_told_what_became_of_it(
    dsn: str, db: Database, conn: psycopg.Connection
) -> None:
    fill(conn, 4)
    batch = done(await claimed(db, count=4))
    locked, gone, taken, fine = batch
    conn.execute("DELETE FROM outbox WHERE id = %s", [gone.message.id])
    conn.execute(
        "UPDATE outbox SET lease_until = now() - interval '1 s' WHERE id = %s", [taken.message.id]
    )
    assert len(await reclaimed(db)) == 1
    with psycopg.connect(dsn) as other:
        other.execute(LOCK, [[locked.message.id, taken.message.id]])
        result = await finalize(db, batch, retried=True, patience=SHORT)
    assert (result.locked, result.unknown, result.lost) == ([locked], [gone], [taken])
    assert result.written == [fine]


async def test_a_locked_row_holds_up_neither_its_batch_nor_the_ones_after_it(
    dsn: str, conn: psycopg.Connection
) -> None:
    stuck = insert(conn)
    fill(conn, 20)
    with psycopg.connect(dsn) as other:

        async def script(message: ClaimedMessage) -> None:
            if message.id == stuck:
                other.execute(LOCK, [[stuck]])

        publisher = Scripted(script)
        async with dispatching(dsn, to(publisher)) as running:
            await running.events.finished(20)
            await running.events.seen(DatabaseFailed)
            for number in range(3):
                fill(conn, 5)
                await running.events.finished(25 + 5 * number)
            assert statuses(conn) == {"done": 35, "processing": 1}
            other.rollback()
            await running.events.finished(36)
            assert len(running.dispatcher.in_flight) == 0
    assert running.dispatcher.tally.counts["lease_lost"] == 0
    assert all(not event.lost for event in running.events.of(Finalized))
    [told] = {event.error for event in running.events.of(DatabaseFailed)}
    assert told.startswith("another transaction has locked 1 of the rows")
    assert f"id {stuck};" in told
    assert len(publisher.begun) == 36


async def test_a_finalizer_is_not_idle_while_a_row_waits_for_its_lock(
    dsn: str, db: Database, conn: psycopg.Connection
) -> None:
    insert(conn)
    [message] = done(await claimed(db))
    events = Events()
    async with finalizing(db, events) as finalizer:
        with psycopg.connect(dsn) as other:
            other.execute(LOCK, [[message.message.id]])
            finalizer.add(message)
            await events.seen(DatabaseFailed)
            idle = asyncio.create_task(finalizer.idle())
            await events.seen(DatabaseFailed, 3)
            assert not idle.done()
        await idle
    assert events.written() == [message]


async def test_a_batch_too_large_for_the_statement_timeout_is_written_in_parts(
    dsn: str, conn: psycopg.Connection
) -> None:
    fill(conn, 40)
    events = Events()
    async with database(dsn, statement_timeout=0.3) as db:
        batch = done(await claimed(db, count=40))
        slow = "BEGIN IF (SELECT count(*) FROM changed) > 10 THEN PERFORM pg_sleep(60); END IF;"
        trigger(conn, slow + " RETURN NULL; END", each="STATEMENT")
        async with finalizing(db, events) as finalizer:
            for each in batch:
                finalizer.add(each)
            async with asyncio.timeout(10):
                await finalizer.idle()
    assert sorted(s.message.id for s in events.written()) == [s.message.id for s in batch]
    assert statuses(conn) == {"done": 40}
    failures = events.of(DatabaseFailed)
    assert all("due to statement timeout" in event.error for event in failures)
    assert len(failures) >= 2
    assert all(not event.lost for event in events.of(Finalized))


async def test_a_row_that_a_trigger_objects_to_is_refused_alone_and_with_its_reason(
    db: Database, conn: psycopg.Connection
) -> None:
    fill(conn, 30)
    batch = done(await claimed(db, count=30))
    bad = batch[11]
    trigger(
        conn,
        f"BEGIN IF NEW.id = {bad.message.id} THEN RAISE 'not this one' USING DETAIL = NEW.payload;"
        " END IF; RETURN NULL; END",
        each="ROW",
    )
    result = await finalize(db, batch, retried=False)
    assert result.refused == [(bad, "not this one (SQLSTATE P0001)")]
    assert (len(result.written), result.lost) == (29, [])
    assert row(conn, bad.message.id)["status"] == "processing"


async def test_a_refused_row_is_let_go_of_and_published_again(
    dsn: str, conn: psycopg.Connection
) -> None:
    number = insert(conn)
    trigger(
        conn,
        "BEGIN IF NEW.status = 'done' AND NEW.attempts = 1 THEN RAISE 'not yet'; END IF;"
        " RETURN NULL; END",
        each="ROW",
    )
    publisher = Scripted()
    async with dispatching(dsn, to(publisher), lease=1.0, renew=0.3) as running:
        await running.events.finished(1)
        refused = [each for event in running.events.of(Finalized) for each in event.refused]
    assert [(r.settled.message.id, r.error) for r in refused] == [
        (number, "not yet (SQLSTATE P0001)")
    ]
    assert [message.attempts for message in publisher.begun] == [1, 2]


RENAMED = "ALTER TABLE outbox RENAME TO outbox_gone"
CLOSED = (
    "CREATE FUNCTION no() RETURNS trigger LANGUAGE plpgsql AS"
    " $$BEGIN RAISE 'closed for today'; END$$;"
    "CREATE TRIGGER no BEFORE UPDATE ON outbox EXECUTE FUNCTION no()"
)


@pytest.mark.parametrize(
    ("fault", "error"),
    [(RENAMED, psycopg.errors.UndefinedTable), (CLOSED, psycopg.errors.RaiseException)],
)
async def test_what_is_no_rows_fault_refuses_none(
    db: Database, conn: psycopg.Connection, fault: str, error: type[Exception]
) -> None:
    fill(conn, 3)
    batch = done(await claimed(db, count=3))
    conn.execute(fault.encode())
    with pytest.raises(error):
        await finalize(db, batch, retried=False)


async def test_a_database_that_became_read_only_refuses_no_row(
    dsn: str, db: Database, conn: psycopg.Connection
) -> None:
    fill(conn, 3)
    batch = done(await claimed(db, count=3))
    standby = make_conninfo(dsn, options="-c default_transaction_read_only=on")
    async with database(standby) as read_only:
        with pytest.raises(psycopg.errors.ReadOnlySqlTransaction):
            await finalize(read_only, batch, retried=False)
