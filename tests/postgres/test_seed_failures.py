from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from pgoutbox.dispatch.sweep import reap
from pgoutbox.errors import Defer, PermanentError, RetryableError
from tests.support.dispatching import (
    Scripted,
    claimed,
    database,
    dispatching,
    expire,
    raising,
    reclaimed,
    row,
    to,
)
from tests.support.outbox_rows import insert

if TYPE_CHECKING:
    import psycopg


async def test_three_transient_failures_at_a_limit_of_three_end_dead(
    dsn: str, conn: psycopg.Connection
) -> None:
    number = insert(conn)
    publisher = Scripted(raising(lambda: RetryableError("busy")))
    async with dispatching(dsn, to(publisher)) as running:
        written = await running.events.finished(3)
    assert [settled.message.attempts for settled in written] == [1, 2, 3]
    end = row(conn, number)
    assert (end["status"], end["attempts"]) == ("dead", 3)
    assert end["last_error"] == "gave up after 3 attempts: busy"
    assert end["done_at"] is not None


async def test_a_transient_failure_below_the_limit_waits_for_its_backoff(
    dsn: str, conn: psycopg.Connection
) -> None:
    number = insert(conn)
    publisher = Scripted(raising(lambda: RetryableError("busy", retry_after=600.0)))
    async with dispatching(dsn, to(publisher)) as running:
        await running.events.finished(1)
        end = row(conn, number)
    assert (end["status"], end["attempts"], end["last_error"]) == ("pending", 1, "busy")
    assert due_in(conn, number) > timedelta(seconds=590)


async def test_a_deferral_costs_no_attempt_and_comes_back_later(
    dsn: str, conn: psycopg.Connection
) -> None:
    number = insert(conn)
    publisher = Scripted(raising(lambda: Defer(timedelta(minutes=10), "closed on Sundays")))
    async with dispatching(dsn, to(publisher)) as running:
        await running.events.finished(1)
    end = row(conn, number)
    assert (end["status"], end["attempts"]) == ("pending", 0)
    assert end["last_error"] == "deferred: closed on Sundays"
    assert due_in(conn, number) > timedelta(seconds=590)


async def test_a_permanent_failure_is_dead_at_once(dsn: str, conn: psycopg.Connection) -> None:
    number = insert(conn)
    publisher = Scripted(raising(lambda: PermanentError("too large")))
    async with dispatching(dsn, to(publisher)) as running:
        await running.events.finished(1)
    end = row(conn, number)
    assert (end["status"], end["attempts"], end["last_error"]) == ("dead", 1, "too large")
    assert len(publisher.begun) == 1


async def test_a_row_whose_every_claim_ends_in_a_crash_is_dead_at_its_limit_and_stays_so(
    dsn: str, conn: psycopg.Connection
) -> None:
    number = insert(conn)
    async with database(dsn) as db:
        assert [message.attempts for message in await claimed(db)] == [1]
        for attempt in (2, 3):
            assert await reap(db, {"default": 3}) == {}
            expire(conn)
            assert [message.attempts for message in await reclaimed(db)] == [attempt]
        expire(conn)
        assert await reclaimed(db) == []
        assert await reap(db, {"default": 3}) == {"default": 1}
        assert await claimed(db) == []
        assert await reclaimed(db) == []
    end = row(conn, number)
    assert (end["status"], end["attempts"]) == ("dead", 3)
    assert "expired at attempt 3" in end["last_error"]


def due_in(conn: psycopg.Connection, number: int) -> timedelta:
    found = conn.execute(
        "SELECT available_at - now() FROM outbox WHERE id = %s", [number]
    ).fetchone()
    assert found is not None
    left: timedelta = found[0]
    return left
