from __future__ import annotations

import asyncio
import dataclasses
import datetime as dt
from collections import Counter
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING

import psycopg

from pgoutbox.destinations.breaker import Breaker, BreakerLimits
from pgoutbox.errors import Defer, RetryableError
from pgoutbox.events import Claimed, Finalized, WorkerStarted
from pgoutbox.outcome import Retry
from tests.support.dispatching import (
    AT_ONCE,
    Scripted,
    ScriptedBatch,
    claimed,
    database,
    dispatching,
    expire,
    raising,
    row,
    statuses,
    to,
    until_true,
)
from tests.support.outbox_rows import fill, insert

if TYPE_CHECKING:
    from pgoutbox.message import ClaimedMessage


async def test_everything_that_is_due_is_published_once_and_finished(
    dsn: str, conn: psycopg.Connection
) -> None:
    fill(conn, 700)
    publisher = Scripted()
    async with dispatching(dsn, to(publisher)) as running:
        await running.events.finished(700)
        await running.stop()
    assert len({message.id for message in publisher.taken}) == len(publisher.begun) == 700
    assert statuses(conn) == {"done": 700}
    assert publisher.closed
    [started] = running.events.of(WorkerStarted)
    assert started.destinations == ("default",)


async def test_a_batch_publisher_gets_what_was_claimed_together(
    dsn: str, conn: psycopg.Connection
) -> None:
    fill(conn, 60)
    publisher = ScriptedBatch()
    async with dispatching(dsn, to(publisher, concurrency=20)) as running:
        await running.events.finished(60)
    assert max(len(batch) for batch in publisher.batches) == 20
    assert statuses(conn) == {"done": 60}


async def test_no_more_is_claimed_than_can_start_at_once(
    dsn: str, conn: psycopg.Connection
) -> None:
    """Per destination and in all, whatever waits behind it."""
    for name in ("narrow", "wide"):
        fill(conn, 100, destination=f"'{name}'")
    narrow, wide = Scripted(), Scripted()
    async with dispatching(
        dsn, to(narrow, "narrow", concurrency=2), to(wide, "wide", concurrency=50), max_in_flight=9
    ) as running:
        await running.events.finished(200)
    assert narrow.most == 2
    assert 2 < wide.most <= 9
    assert all(len(event.messages) <= 9 for event in running.events.of(Claimed))


async def test_workers_with_a_slow_destination_hold_only_what_they_are_publishing(
    dsn: str, conn: psycopg.Connection
) -> None:
    fill(conn, 20)
    held: list[int] = []

    async def slow(_message: ClaimedMessage) -> None:
        found = conn.execute("SELECT count(*) FROM outbox WHERE status = 'processing'").fetchone()
        assert found is not None
        held.append(found[0])
        await asyncio.sleep(0.002)

    publisher = Scripted(slow)
    async with AsyncExitStack() as stack:
        for _ in range(2):
            await stack.enter_async_context(
                dispatching(dsn, to(publisher, concurrency=1), max_in_flight=2)
            )
        await until_true(conn, b"SELECT count(*) = 20 FROM outbox WHERE status = 'done'")
    assert len(publisher.begun) == 20
    # Two being published, and two whose results are on their way to the database.
    assert max(held) <= 4


async def test_one_message_that_always_fails_holds_up_nobody_and_is_not_tried_in_a_loop(
    dsn: str, conn: psycopg.Connection
) -> None:
    bad = insert(conn)
    fill(conn, 1000)

    async def script(message: ClaimedMessage) -> None:
        if message.id == bad:
            raise RetryableError("x", retry_after=60.0)

    publisher = Scripted(script)
    async with dispatching(dsn, to(publisher)) as running:
        await running.events.finished(1001)
    assert statuses(conn) == {"done": 1000, "pending": 1}
    assert [message.id for message in publisher.begun].count(bad) == 1


async def test_rows_that_were_locked_for_a_moment_are_found_as_soon_as_they_are_free(
    dsn: str, conn: psycopg.Connection
) -> None:
    fill(conn, 20)
    publisher = Scripted()
    with psycopg.connect(dsn) as other:
        other.execute("SELECT FROM outbox ORDER BY id LIMIT 10 FOR UPDATE")
        async with dispatching(dsn, to(publisher)) as running:
            await running.events.finished(10)
            other.rollback()
            await running.events.finished(20)
    assert len(publisher.begun) == 20


async def test_several_workers_at_once_leave_no_due_row_behind(
    dsn: str, conn: psycopg.Connection
) -> None:
    fill(conn, 1500)
    publisher = Scripted()
    async with AsyncExitStack() as stack:
        for _ in range(3):
            await stack.enter_async_context(dispatching(dsn, to(publisher, concurrency=20)))
        await publisher.until(lambda: len(publisher.taken) >= 1500)
    assert Counter(message.id for message in publisher.begun).most_common(1)[0][1] == 1
    assert statuses(conn) == {"done": 1500}


async def test_deferrals_do_not_lengthen_the_backoff_of_the_first_real_failure(
    dsn: str, conn: psycopg.Connection
) -> None:
    insert(conn)
    publisher = Scripted()

    async def script(_message: ClaimedMessage) -> None:
        if len(publisher.begun) <= 20:
            raise Defer(dt.timedelta(0), "not yet")
        raise RetryableError("busy", retry_after=60.0)

    publisher._script = script
    async with dispatching(dsn, to(publisher)) as running:
        written = await running.events.finished(21)
    assert {settled.message.attempts for settled in written} == {1}
    assert written[20].transition == Retry(60.0, "busy")


async def test_the_only_worker_retakes_what_its_former_life_held_once_the_lease_is_over(
    dsn: str, conn: psycopg.Connection
) -> None:
    number = insert(conn)
    publisher = Scripted()
    async with database(dsn) as db:
        await claimed(db, owner="w-0")
    async with dispatching(dsn, to(publisher), owner="w-0") as running:
        insert(conn)
        await running.events.finished(1)
        assert row(conn, number)["status"] == "processing"
        expire(conn)
        await running.events.finished(2)
    assert row(conn, number)["status"] == "done"
    assert publisher.taken[-1].attempts == 2


async def test_a_worker_publishes_one_suspect_at_a_time_while_others_pass(
    dsn: str, conn: psycopg.Connection
) -> None:
    """Messages that were there when two workers died, one after the other."""
    fill(conn, 3, status="'processing'", lease_owner="'x'", lease_until="now()", reclaims="1")
    suspects = {number for (number,) in conn.execute("SELECT id FROM outbox").fetchall()}
    expire(conn)
    enough = asyncio.Event()
    at_once: list[int] = []

    async def script(message: ClaimedMessage) -> None:
        if message.id in suspects:
            held = {flight.message.id for flight in running.dispatcher.in_flight}
            at_once.append(len(held & suspects))
            await enough.wait()

    publisher = Scripted(script)
    async with dispatching(dsn, to(publisher), reclaim_interval=0.01) as running:
        await publisher.until(lambda: publisher.running)
        for count in range(1, 11):
            fill(conn, 10)
            await running.events.finished(10 * count)
        enough.set()
        await running.events.finished(103)
    assert at_once == [1, 1, 1]


async def test_a_hundred_publishes_share_one_connection_and_are_written_in_groups(
    dsn: str, conn: psycopg.Connection
) -> None:
    fill(conn, 400)
    publisher = Scripted()
    async with dispatching(dsn, to(publisher, concurrency=100), pool_max=1) as running:
        await running.events.finished(400)
    assert statuses(conn) == {"done": 400}
    assert len(running.events.of(Finalized)) < 100
    assert publisher.most > 10


async def test_rows_that_arrive_while_their_neighbours_are_published_are_published_next(
    dsn: str, conn: psycopg.Connection
) -> None:
    first = insert(conn)
    late: list[int] = []

    async def script(message: ClaimedMessage) -> None:
        if message.id == first:
            late.append(insert(conn))

    async with dispatching(dsn, to(Scripted(script))) as running:
        written = await running.events.finished(2)
    assert [settled.message.id for settled in written] == [first, *late]


async def test_retries_that_fail_for_ever_end_dead_and_leave_the_worker_in_peace(
    dsn: str, conn: psycopg.Connection
) -> None:
    fill(conn, 50)
    publisher = Scripted(raising(lambda: RetryableError("busy")))
    patient = Breaker(BreakerLimits(failures=1000))
    async with dispatching(dsn, to(publisher, breaker=patient)) as running:
        await running.events.finished(150)
    assert statuses(conn) == {"dead": 50}
    assert len(publisher.begun) == 150


async def test_messages_that_fail_with_their_destination_for_too_long_spend_their_attempts(
    dsn: str, conn: psycopg.Connection
) -> None:
    fill(conn, 20)
    publisher = Scripted(raising(lambda: RetryableError("busy")))
    quick = Breaker(BreakerLimits(failures=5, pause=0.002, max_pause=0.004))
    impatient = dataclasses.replace(AT_ONCE, defer_max_age=0.001)
    async with dispatching(dsn, to(publisher, policy=impatient, breaker=quick)) as running:
        await running.events.finished(60)
    assert statuses(conn) == {"dead": 20}
