"""Connections that break, answers that get lost, leases that nearly end."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any

import psycopg
import pytest
from psycopg_pool import PoolTimeout

from pgoutbox.database.pool import Database
from pgoutbox.dispatch import keeper
from pgoutbox.dispatch.finalize import FINALIZE
from pgoutbox.dispatch.renew import RENEW
from pgoutbox.events import (
    DatabaseFailed,
    DatabaseRecovered,
    Finalized,
    LeaseLost,
    LeaseUnconfirmed,
    Renewed,
)
from pgoutbox.outcome import RetryableFailure
from tests.support.dispatching import (
    NO_PATIENCE,
    Scripted,
    dispatching,
    expire,
    hang,
    row,
    statuses,
    to,
    until_true,
)
from tests.support.outbox_rows import fill, insert

if TYPE_CHECKING:
    from pgoutbox.message import ClaimedMessage


CLAIM_WAITS = b"""
SELECT count(*) > 0
  FROM pg_stat_activity
 WHERE datname = current_database()
   AND wait_event_type = 'Lock'
   AND query LIKE '%picked%'
"""


def cut_all_connections(conn: psycopg.Connection[Any]) -> None:
    conn.execute(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
        " WHERE datname = current_database() AND pid <> pg_backend_pid()"
    )


@pytest.fixture
def narrow_margins(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leases of a second or two are enough to test with."""
    monkeypatch.setattr(keeper, "FENCE_MARGIN", 0.2)
    monkeypatch.setattr(keeper, "WATCH_SECONDS", 0.02)


@pytest.mark.usefixtures("narrow_margins")
async def test_a_publish_that_outlasts_its_lease_by_far_is_renewed_and_happens_once(
    dsn: str, conn: psycopg.Connection
) -> None:
    number = insert(conn)
    long_enough = asyncio.Event()

    async def slow(_message: ClaimedMessage) -> None:
        await long_enough.wait()

    publisher = Scripted(slow)
    async with (
        dispatching(dsn, to(publisher), owner="w-0", lease=2.0, renew=0.25) as one,
        dispatching(dsn, to(publisher), owner="w-1", lease=2.0, renew=0.25) as two,
    ):
        await publisher.until(lambda: publisher.running)
        [busy] = [worker for worker in (one, two) if len(worker.dispatcher.in_flight)]
        await busy.events.seen(Renewed, count=12)
        long_enough.set()
        await busy.events.finished(1)
    assert len(publisher.begun) == 1
    assert (row(conn, number)["status"], row(conn, number)["attempts"]) == ("done", 1)


async def test_a_lease_is_counted_from_before_the_claim_was_sent(
    dsn: str, conn: psycopg.Connection
) -> None:
    publisher = Scripted(hang)
    async with dispatching(dsn, to(publisher), lease=30.0, times=NO_PATIENCE) as running:
        running.dispatcher.reclaimer._next = float("inf")
        with psycopg.connect(dsn) as other:
            other.execute("LOCK TABLE outbox IN ACCESS EXCLUSIVE MODE")
            insert(other)
            await until_true(conn, CLAIM_WAITS)
            not_before = time.monotonic()
            other.commit()
        await publisher.until(lambda: publisher.running)
        [flight] = running.dispatcher.in_flight
        assert flight.lease_ends <= not_before + 30.0


async def test_a_publish_whose_lease_is_lost_is_cancelled_and_writes_nothing(
    dsn: str, conn: psycopg.Connection
) -> None:
    stolen, kept = insert(conn), insert(conn)
    enough = asyncio.Event()

    async def script(message: ClaimedMessage) -> None:
        await (hang(message) if message.id == stolen else enough.wait())

    publisher = Scripted(script)
    async with dispatching(dsn, to(publisher), lease=30.0, renew=0.05) as running:
        await publisher.until(lambda: publisher.running == 2)
        conn.execute(
            "UPDATE outbox SET lease_owner = 'thief', lease_version = 99 WHERE id = %s", [stolen]
        )
        before = row(conn, stolen)
        [lost] = await running.events.seen(LeaseLost)
        await publisher.until(lambda: publisher.running == 1)
        enough.set()
        await running.events.finished(1)
    assert [message.id for message in lost.messages] == [stolen]
    assert row(conn, stolen) == before
    assert row(conn, kept)["status"] == "done"


@pytest.mark.usefixtures("narrow_margins")
async def test_a_publish_whose_lease_cannot_be_confirmed_is_cancelled_before_it_ends(
    dsn: str, conn: psycopg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    number = insert(conn)
    monkeypatch.setattr(Database, "fetch", failing(Database.fetch, RENEW))
    publisher = Scripted(hang)
    async with dispatching(dsn, to(publisher), lease=1.0, renew=0.2, times=NO_PATIENCE) as running:
        await running.events.seen(LeaseUnconfirmed)
        [settled, *_] = await running.events.finished(1)
        assert isinstance(settled.outcome, RetryableFailure)
        assert running.events.of(DatabaseFailed)[0].doing == "renew"
        await publisher.until(lambda: len(publisher.begun) == 2)
    assert row(conn, number)["attempts"] == 2


def failing(fetch: Any, chosen: bytes) -> Any:
    """As ``fetch``, but that statement never gets through."""

    async def broken(db: Database, statement: bytes, *args: Any, **kwargs: Any) -> Any:
        if statement == chosen:
            raise psycopg.OperationalError("cut off")
        return await fetch(db, statement, *args, **kwargs)

    return broken


async def test_a_result_whose_answer_was_lost_is_recognised_as_written(
    dsn: str, conn: psycopg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    number = insert(conn)
    fetch = Database.fetch
    lost: list[Any] = []

    async def losing(db: Database, statement: bytes, *args: Any, **kwargs: Any) -> Any:
        answer = await fetch(db, statement, *args, **kwargs)
        if statement == FINALIZE and not lost:
            lost.append(answer)
            raise psycopg.OperationalError("the connection was lost")
        return answer

    monkeypatch.setattr(Database, "fetch", losing)
    publisher = Scripted()
    async with dispatching(dsn, to(publisher)) as running:
        [finalized] = await running.events.seen(Finalized)
    assert [settled.message.id for settled in finalized.already_written] == [number]
    assert (finalized.written, finalized.lost) == ([], [])
    assert len(publisher.begun) == 1
    assert running.dispatcher.tally.counts["published"] == 1
    assert running.dispatcher.tally.counts["lease_lost"] == 0


async def test_a_result_is_written_although_every_connection_was_cut_meanwhile(
    dsn: str, conn: psycopg.Connection
) -> None:
    fill(conn, 5)

    async def script(_message: ClaimedMessage) -> None:
        cut_all_connections(conn)

    publisher = Scripted(script)
    async with dispatching(dsn, to(publisher)) as running:
        await running.events.finished(5)
    assert statuses(conn) == {"done": 5}
    assert len(publisher.begun) == 5
    assert {message.attempts for message in publisher.begun} == {1}


async def test_a_result_is_written_although_its_lease_ran_out_in_an_outage(
    dsn: str, conn: psycopg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    number = insert(conn)
    fetch = Database.fetch
    tries: list[int] = []

    async def down_for_a_while(db: Database, statement: bytes, *args: Any, **kwargs: Any) -> Any:
        if statement == FINALIZE:
            tries.append(expire(conn))
            if len(tries) < 3:
                raise psycopg.OperationalError("the server is starting up")
        return await fetch(db, statement, *args, **kwargs)

    monkeypatch.setattr(Database, "fetch", down_for_a_while)
    async with dispatching(dsn, to(Scripted()), reclaim_interval=60.0) as running:
        await running.events.finished(1)
    assert len(tries) == 3
    assert row(conn, number)["status"] == "done"


async def test_the_end_of_an_outage_is_told_and_work_goes_on(
    dsn: str, conn: psycopg.Connection
) -> None:
    publisher = Scripted()
    async with dispatching(dsn, to(publisher)) as running:
        conn.execute("ALTER TABLE outbox RENAME TO outbox_gone")
        # Of other work that failed no end is told.
        await running.events.until(
            lambda: any(
                each.doing == "claim" and "outbox" in each.error
                for each in running.events.of(DatabaseFailed)
            )
        )
        conn.execute("ALTER TABLE outbox_gone RENAME TO outbox")
        await running.events.seen(DatabaseRecovered)
        insert(conn)
        await running.events.finished(1)
        assert await running.stop() == 0


async def test_a_pool_that_is_busy_for_a_while_costs_no_attempt(
    dsn: str, conn: psycopg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    number = insert(conn)
    fetch = Database.fetch
    busy = iter([PoolTimeout("busy"), TimeoutError("busy"), OSError("busy")])

    async def crowded(db: Database, statement: bytes, *args: Any, **kwargs: Any) -> Any:
        if statement == FINALIZE and (error := next(busy, None)):
            raise error
        return await fetch(db, statement, *args, **kwargs)

    monkeypatch.setattr(Database, "fetch", crowded)
    publisher = Scripted()
    async with dispatching(dsn, to(publisher)) as running:
        await running.events.finished(1)
    assert (row(conn, number)["status"], row(conn, number)["attempts"]) == ("done", 1)
    assert len(publisher.begun) == 1
