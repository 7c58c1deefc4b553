"""One test per promise, named after it."""

from __future__ import annotations

import asyncio
import datetime as dt
import random
import time
from collections import Counter
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from pgoutbox.database.pool import Database
from pgoutbox.dispatch import (
    claim,
    finalize,
    lanes,
    listen,
    reclaim,
    renew,
    retry,
    sweep,
    wakeup,
)
from pgoutbox.dispatch.drain import DrainTimes
from pgoutbox.dispatch.finalize import finalize as write
from pgoutbox.dispatch.sweep import reap
from pgoutbox.errors import Defer, DestinationUnavailable, RetryableError
from pgoutbox.events import DrainEnded, DrainStarted, Finalized
from pgoutbox.outcome import Bury, Finish, Interrupted, Release, Retry
from tests.support.dispatching import (
    Scripted,
    claimed,
    database,
    dispatching,
    eventually,
    expire,
    hang,
    reclaimed,
    row,
    settled,
    statuses,
    to,
    until_true,
)
from tests.support.outbox_rows import fill, insert

if TYPE_CHECKING:
    from pgoutbox.message import ClaimedMessage

LIMIT = 4

IDLE_IN_TRANSACTION = """
SELECT count(*)
  FROM pg_stat_activity
 WHERE datname = current_database()
   AND state LIKE 'idle in transaction%'
"""
CLAIM_WAITS = b"""
SELECT count(*) > 0
  FROM pg_stat_activity
 WHERE datname = current_database()
   AND wait_event_type = 'Lock'
   AND query LIKE '%picked%'
"""
NO_LOCKS = b"""
SELECT count(*) = 0
  FROM pg_locks AS l
  JOIN pg_stat_activity AS a USING (pid)
 WHERE a.datname = current_database()
   AND a.backend_type = 'client backend'
   AND pid <> pg_backend_pid()
"""


@pytest.mark.parametrize("seed", [1, 2])
async def test_a_committed_message_is_published_at_least_once_or_ends_dead_whatever_crashes(
    dsn: str, conn: psycopg.Connection, seed: int
) -> None:
    """Workers die after the claim, after the publish, or after half of their results."""
    fill(conn, 60)
    rng = random.Random(seed)
    published: Counter[int] = Counter()
    async with database(dsn) as db:
        for life in range(500):
            held = await reclaimed(db, owner=f"w-{life}", count=20, limit=LIMIT)
            held += await claimed(db, owner=f"w-{life}", count=20)
            for message in held[: rng.randint(0, len(held))]:
                published[message.id] += 1
            done = [m for m in held if published[m.id] and rng.random() < 0.5]
            if done and rng.random() < 0.7:
                await write(db, [settled(m, Finish()) for m in done], retried=False)
            expire(conn)
            await reap(db, {"default": LIMIT})
            if not {"pending", "processing"} & statuses(conn).keys():
                break
    ends: dict[int, str] = dict(conn.execute("SELECT id, status FROM outbox").fetchall())
    assert len(ends) == 60
    assert set(ends.values()) <= {"done", "dead"}
    assert all(published[number] for number, status in ends.items() if status == "done")


async def test_two_workers_never_hold_the_same_message_at_the_same_time(
    dsn: str, conn: psycopg.Connection
) -> None:
    fill(conn, 300)
    held: set[int] = set()
    twice: list[int] = []

    async def script(message: ClaimedMessage) -> None:
        if message.id in held:
            twice.append(message.id)
        held.add(message.id)
        await asyncio.sleep(0)
        held.discard(message.id)
        if message.attempts == 1 and message.id % 3 == 0:
            raise RetryableError("once more")

    publisher = Scripted(script)
    async with AsyncExitStack() as stack:
        for number in range(4):
            await stack.enter_async_context(
                dispatching(dsn, to(publisher, concurrency=9), owner=f"w-{number}")
            )
        await until_true(conn, b"SELECT count(*) = 300 FROM outbox WHERE status = 'done'")
    assert twice == []
    assert len(publisher.begun) == 400


@pytest.mark.parametrize("transition", [Finish(), Retry(0.0, "x"), Release(), Bury("x")], ids=repr)
async def test_a_worker_that_was_overtaken_can_change_nothing_and_is_told(
    dsn: str, conn: psycopg.Connection, transition: Finish | Retry | Release | Bury
) -> None:
    number = insert(conn)
    async with database(dsn) as db:
        [old] = await claimed(db, owner="a")
        expire(conn)
        [new] = await reclaimed(db, owner="b")
        before = row(conn, number)
        result = await write(db, [settled(old, transition)], retried=False)
        assert (len(result.lost), len(result.written)) == (1, 0)
        assert await renew.renew(db, [old], lease=300.0) == (set(), {old.lease})
        assert row(conn, number) == before
        assert len((await write(db, [settled(new, Finish())], retried=False)).written) == 1
        assert len((await write(db, [settled(old, transition)], retried=False)).lost) == 1
    assert row(conn, number)["status"] == "done"


async def test_an_owner_that_finished_late_but_was_not_overtaken_gets_its_result_written(
    dsn: str, conn: psycopg.Connection
) -> None:
    number = insert(conn)

    async def late(_message: ClaimedMessage) -> None:
        expire(conn)

    async with dispatching(dsn, to(Scripted(late)), reclaim_interval=60.0) as running:
        running.dispatcher.reclaimer._next = time.monotonic() + 60.0
        await running.events.seen(Finalized)
    assert row(conn, number)["status"] == "done"
    assert running.dispatcher.tally.counts["lease_lost"] == 0


async def test_no_transaction_lock_or_connection_is_held_while_a_publisher_works(
    dsn: str, conn: psycopg.Connection
) -> None:
    fill(conn, 20)
    enough = asyncio.Event()

    async def script(_message: ClaimedMessage) -> None:
        await enough.wait()

    publisher = Scripted(script)
    async with dispatching(dsn, to(publisher)) as running:
        await publisher.until(lambda: publisher.running == 20)
        for _ in range(30):
            assert conn.execute(IDLE_IN_TRANSACTION).fetchone() == (0,)
            await asyncio.sleep(0.002)
        # The claim loop goes on looking, but between two looks nothing is held at all.
        await until_true(conn, NO_LOCKS)
        await eventually(lambda: free_connections(running.db) == running.db.stats()["pool_size"])
        conn.execute("SELECT FROM outbox WHERE status = 'processing' FOR UPDATE NOWAIT")
        assert publisher.running == 20
        enough.set()
        await running.events.finished(20)


def free_connections(db: Database) -> int:
    return db.stats()["pool_available"]


async def test_a_message_that_kills_its_worker_stops_after_its_limit_of_claims(
    dsn: str, conn: psycopg.Connection
) -> None:
    poison = insert(conn)
    fill(conn, 5)
    deaths = 0
    async with database(dsn) as db:
        while row(conn, poison)["status"] != "dead":
            held = await reclaimed(db, limit=LIMIT) + await claimed(db)
            if poison in {message.id for message in held}:
                deaths += 1
            else:
                await write(db, [settled(m, Finish()) for m in held], retried=False)
            expire(conn)
            await reap(db, {"default": LIMIT})
        assert poison not in {m.id for m in await reclaimed(db, limit=LIMIT) + await claimed(db)}
    assert deaths == LIMIT
    assert row(conn, poison)["attempts"] == LIMIT


@pytest.mark.parametrize(
    "error",
    [
        lambda: Defer(dt.timedelta(0), "not yet"),
        lambda: DestinationUnavailable("refused"),
    ],
    ids=["deferred", "unreachable"],
)
async def test_a_deferral_or_a_destination_that_is_down_spends_no_attempt(
    dsn: str, conn: psycopg.Connection, monkeypatch: pytest.MonkeyPatch, error: Any
) -> None:
    monkeypatch.setattr(retry, "MIN_UNAVAILABLE_DELAY", 0.0)
    number = insert(conn)

    async def script(_message: ClaimedMessage) -> None:
        # Fewer in a row than would close the destination.
        if len(publisher.begun) < 5:
            raise error()

    publisher = Scripted(script)
    async with dispatching(dsn, to(publisher)) as running:
        await running.events.finished(5)
    assert {message.attempts for message in publisher.begun} == {1}
    assert (row(conn, number)["status"], row(conn, number)["attempts"]) == ("done", 1)


async def test_the_drain_of_unstarted_work_spends_no_attempt(
    dsn: str, conn: psycopg.Connection
) -> None:
    publisher = Scripted()
    async with dispatching(dsn, to(publisher)) as running:
        running.dispatcher.reclaimer._next = float("inf")
        with psycopg.connect(dsn) as other:
            other.execute("LOCK TABLE outbox IN ACCESS EXCLUSIVE MODE")
            number = insert(other)
            await until_true(conn, CLAIM_WAITS)
            stopping = asyncio.create_task(running.stop())
            await running.events.seen(DrainStarted)
            other.commit()
        assert await stopping == 0
    assert publisher.begun == []
    end = row(conn, number)
    assert (end["status"], end["attempts"], end["lease_version"]) == ("pending", 0, 1)


async def test_times_are_compared_by_the_databases_clock_alone(
    dsn: str, conn: psycopg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker whose clock is hours off and in another zone neither steals nor starves."""
    sent: list[Any] = []
    for name in ("fetch", "execute"):
        monkeypatch.setattr(Database, name, noting(getattr(Database, name), sent))
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    time.tzset()
    clock = time.time
    monkeypatch.setattr(time, "time", lambda: clock() + 36_000.0)
    other = insert(conn)
    async with database(dsn) as db:
        [held] = await claimed(db, owner="of another")
    due = insert(conn)
    later = insert(conn, available_at=dt.datetime.now(dt.UTC) + dt.timedelta(hours=1))

    async def script(message: ClaimedMessage) -> None:
        if message.attempts == 1:
            raise RetryableError("busy", retry_after=0.01)

    publisher = Scripted(script)
    async with dispatching(dsn, to(publisher), listen=True) as running:
        await running.events.finished(2)
    monkeypatch.undo()
    time.tzset()
    assert {message.id for message in publisher.begun} == {due}
    assert held.id == other
    assert row(conn, other)["lease_owner"] == "of another"
    assert row(conn, later)["status"] == "pending"
    assert sent
    assert not [value for value in sent if isinstance(value, dt.datetime | dt.date | dt.time)]
    assert not [value for value in sent if isinstance(value, float) and value > 1e8]


def noting(call: Any, sent: list[Any]) -> Any:
    """As ``call``, and notes every value that is sent along."""

    async def noted(db: Database, statement: bytes, values: Any = None, **kwargs: Any) -> Any:
        for value in (values or {}).values():
            sent.extend(value if isinstance(value, list) else [value])
        return await call(db, statement, values, **kwargs)

    return noted


def test_no_statement_takes_a_point_in_time_from_its_caller() -> None:
    statements = {
        f"{module.__name__}.{name}": value
        for module in (claim, finalize, lanes, listen, reclaim, renew, sweep, wakeup)
        for name, value in vars(module).items()
        if isinstance(value, bytes)
    }
    assert len(statements) >= 9
    for name, statement in statements.items():
        # Where the last claim stopped reading: the database said so itself.
        text = statement.decode().replace("timestamptz 'epoch' + w.last_at", "")
        assert "timestamp" not in text, name
        for clock in ("clock_timestamp", "statement_timestamp", "current_timestamp", "%(now)"):
            assert clock not in text.lower(), name


async def test_a_drain_finishes_or_hands_back_everything_and_ends_before_the_grace(
    dsn: str, conn: psycopg.Connection
) -> None:
    quick, stuck = insert(conn), insert(conn)

    async def script(message: ClaimedMessage) -> None:
        await (hang(message) if message.id == stuck else asyncio.sleep(0.05))

    times = DrainTimes(grace=8.0, soft=0.3, cancel=2.0, release=1.0, flush=0.5, margin=0.5)
    publisher = Scripted(script)
    async with dispatching(dsn, to(publisher), times=times) as running:
        await publisher.until(lambda: publisher.running == 2)
        began = time.monotonic()
        stopping = asyncio.create_task(running.stop())
        fill(conn, 5)
        assert await stopping == 0
        assert time.monotonic() - began < times.grace - times.margin
    [ended] = running.events.of(DrainEnded)
    assert (ended.finished, ended.interrupted, ended.abandoned) == (1, 1, 0)
    assert row(conn, quick)["status"] == "done"
    assert (row(conn, stuck)["status"], row(conn, stuck)["attempts"]) == ("pending", 1)
    assert [s.outcome for s in running.events.written() if s.message.id == stuck] == [Interrupted()]
    assert "processing" not in statuses(conn)
    assert conn.execute("SELECT count(*) FROM outbox_workers").fetchone() == (0,)
