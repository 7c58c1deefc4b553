from __future__ import annotations

import asyncio
import uuid
from typing import TYPE_CHECKING, Any

from pgoutbox._version import __version__
from pgoutbox.dispatch.sweep import FORGET, Heartbeat, beat
from tests.support.dispatching import (
    Scripted,
    database,
    dispatching,
    to,
    until_true,
)
from tests.support.outbox_rows import fill

if TYPE_CHECKING:
    import psycopg

    from pgoutbox.message import ClaimedMessage


def workers(conn: psycopg.Connection[Any]) -> list[dict[str, Any]]:
    rows = conn.execute("SELECT to_jsonb(w) FROM outbox_workers w ORDER BY owner").fetchall()
    return [columns for (columns,) in rows]


async def test_a_running_worker_tells_who_it_is_and_what_it_does(
    dsn: str, conn: psycopg.Connection
) -> None:
    fill(conn, 3)
    incarnation = str(uuid.uuid4())
    async with dispatching(
        dsn,
        to(Scripted()),
        owner="w-0",
        incarnation=incarnation,
        heartbeat_interval=0.05,
        max_in_flight=7,
    ) as running:
        await running.events.finished(3)
        await until_true(conn, b"SELECT (counters ->> 'published')::int = 3 FROM outbox_workers")
        [worker] = workers(conn)
    assert (worker["incarnation"], worker["owner"]) == (incarnation, "w-0")
    assert (worker["version"], worker["state"], worker["slots"]) == (__version__, "running", 7)
    assert worker["counters"]["claimed"] == 3
    assert worker["destinations"]["default"] == {
        "stopped": False,
        "breaker": "closed",
        "slots": 50,
    }


async def test_a_worker_that_ended_in_order_leaves_no_row_behind(
    dsn: str, conn: psycopg.Connection
) -> None:
    async with dispatching(dsn, to(Scripted())):
        await until_true(conn, b"SELECT count(*) = 1 FROM outbox_workers")
    assert workers(conn) == []


async def test_a_worker_says_at_once_that_it_lives_and_at_once_that_it_drains(
    dsn: str, conn: psycopg.Connection
) -> None:
    fill(conn, 1)
    enough = asyncio.Event()

    async def wait(_message: ClaimedMessage) -> None:
        await enough.wait()

    publisher = Scripted(wait)
    async with dispatching(dsn, to(publisher), heartbeat_interval=600) as running:
        await until_true(conn, b"SELECT state = 'running' FROM outbox_workers")
        await publisher.until(lambda: publisher.running)
        running.dispatcher.request_stop("the test wants it")
        await until_true(conn, b"SELECT state = 'draining' AND busy = 1 FROM outbox_workers")
        enough.set()


async def test_two_lives_under_one_name_are_two_rows(dsn: str, conn: psycopg.Connection) -> None:
    async with (
        dispatching(dsn, to(Scripted()), owner="w-0"),
        dispatching(dsn, to(Scripted()), owner="w-0"),
    ):
        await until_true(conn, b"SELECT count(*) = 2 FROM outbox_workers WHERE owner = 'w-0'")


async def test_a_busy_worker_shows_how_many_messages_it_holds(
    dsn: str, conn: psycopg.Connection
) -> None:
    fill(conn, 4)
    enough = asyncio.Event()

    async def wait(_message: ClaimedMessage) -> None:
        await enough.wait()

    async with dispatching(dsn, to(Scripted(wait)), heartbeat_interval=0.05):
        await until_true(conn, b"SELECT busy = 4 FROM outbox_workers")
        enough.set()
        await until_true(conn, b"SELECT busy = 0 FROM outbox_workers")


async def test_workers_that_were_killed_are_forgotten_after_an_hour_and_not_before(
    dsn: str, conn: psycopg.Connection
) -> None:
    async with database(dsn) as db:
        for owner in ("gone", "recent"):
            await beat(
                db,
                Heartbeat(
                    incarnation=str(uuid.uuid4()),
                    owner=owner,
                    version="1",
                    state="running",
                    slots=1,
                    busy=0,
                ),
            )
        conn.execute(
            "UPDATE outbox_workers SET seen_at = now() - CASE owner WHEN 'gone'"
            " THEN interval '61 min' ELSE interval '59 min' END"
        )
        await db.execute(FORGET)
    assert [worker["owner"] for worker in workers(conn)] == ["recent"]
