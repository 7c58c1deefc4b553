"""What is done and cannot leave the outbox: it is written all the same, and at what price."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import psycopg
import pytest
from psycopg.errors import QueryCanceled

from pgoutbox.dispatch import finalizer
from pgoutbox.dispatch.finalize import finalize
from pgoutbox.events import DatabaseFailed
from pgoutbox.outcome import Finish, Retry
from tests.support.dispatching import (
    Scripted,
    claimed,
    database,
    dispatching,
    expire,
    reclaimed,
    settled,
    statuses,
    to,
)
from tests.support.outbox_rows import fill

if TYPE_CHECKING:
    from pgoutbox.dispatch.finalize_statements import Mode
    from tests.support.dispatching import Running

LEAVING: list[Mode] = ["delete", "archive"]


@pytest.fixture(autouse=True)
def prepared(conn: psycopg.Connection) -> None:
    conn.execute("SELECT outbox_archive_prepare()")


def before_each_delete(conn: psycopg.Connection[Any], body: str) -> None:
    """Run this before a row is deleted."""
    conn.execute(
        f"CREATE FUNCTION meddle() RETURNS trigger LANGUAGE plpgsql AS $$BEGIN {body} END$$;"
        "CREATE TRIGGER meddle BEFORE DELETE ON outbox FOR EACH ROW"
        " EXECUTE FUNCTION meddle()".encode()
    )


def timeouts(running: Running) -> int:
    return sum("timeout" in failed.error for failed in kept(running))


def kept(running: Running) -> list[DatabaseFailed]:
    failures = running.events.of(DatabaseFailed)
    return [failed for failed in failures if "stays in the outbox" in failed.error]


@pytest.mark.parametrize("mode", LEAVING)
async def test_a_message_whose_delete_a_trigger_suppresses_is_done_and_published_once(
    dsn: str, conn: psycopg.Connection, mode: Mode
) -> None:
    before_each_delete(conn, "IF OLD.aggregate_id = '3' THEN RETURN NULL; END IF; RETURN OLD;")
    fill(conn, 5)
    async with database(dsn) as db:
        batch = [settled(message, Finish()) for message in await claimed(db)]
        result = await finalize(db, batch, retried=False, retention=mode)
    assert sorted(each.message.id for each in result.written) == [s.message.id for s in batch]
    assert (result.lost, result.unknown) == ([], [])
    assert "suppressed" in result.kept[0]
    assert statuses(conn) == {"done": 1}


@pytest.mark.parametrize("mode", LEAVING)
async def test_a_suppressed_delete_does_not_write_what_is_lost(
    dsn: str, conn: psycopg.Connection, mode: Mode
) -> None:
    before_each_delete(conn, "RETURN NULL;")
    fill(conn, 3)
    async with database(dsn) as db:
        batch = [settled(message, Finish()) for message in await claimed(db)]
        batch[2] = settled(batch[2].message, Retry(60.0, "busy"))
        expire(conn)
        await reclaimed(db, count=1)
        result = await finalize(db, batch, retried=False, retention=mode)
    assert (result.lost, result.written) == ([batch[0]], [batch[2], batch[1]])
    assert statuses(conn) == {"processing": 1, "done": 1, "pending": 1}


async def test_a_locked_archive_costs_one_statement_timeout_and_not_one_for_each_batch(
    dsn: str, conn: psycopg.Connection
) -> None:
    with psycopg.connect(dsn) as other:
        other.execute("LOCK TABLE outbox_archive IN ACCESS EXCLUSIVE MODE")
        fill(conn, 40)
        async with dispatching(
            dsn,
            to(Scripted(), concurrency=4),
            statement_timeout=1.0,
            retention_mode="archive",
        ) as running:
            await running.events.finished(40)
            assert timeouts(running) == 1
    assert statuses(conn) == {"done": 40}


async def test_messages_leave_again_once_that_has_been_tried_again(
    dsn: str, conn: psycopg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(finalizer, "KEEP_SECONDS", 0.0)
    before_each_delete(conn, "RETURN NULL;")
    fill(conn, 3)
    async with dispatching(dsn, to(Scripted()), retention_mode="delete") as running:
        await running.events.finished(3)
        conn.execute("DROP TRIGGER meddle ON outbox")
        fill(conn, 4)
        await running.events.finished(7)
    assert statuses(conn) == {"done": 3}


async def test_a_slow_delete_counts_as_a_batch_that_was_too_large(
    dsn: str, conn: psycopg.Connection
) -> None:
    before_each_delete(conn, "PERFORM pg_sleep(0.2); RETURN OLD;")
    fill(conn, 10)
    async with database(dsn, statement_timeout=0.5) as db:
        batch = [settled(message, Finish()) for message in await claimed(db)]
        result = await finalize(db, batch, retried=False, retention="delete")
    assert (result.written, len(result.kept)) == (batch, 1)
    assert [type(error) for error in result.canceled] == [QueryCanceled]
    assert statuses(conn) == {"done": 10}
