"""What workers tidy up under each retention mode, after any other mode, and side by side."""

from __future__ import annotations

import random
from contextlib import AsyncExitStack
from datetime import timedelta
from itertools import permutations
from typing import TYPE_CHECKING, Any, get_args

import psycopg
import pytest
from psycopg import errors

from pgoutbox.dispatch import rounds
from pgoutbox.dispatch.finalize_statements import Mode
from pgoutbox.dispatch.retention import archive_kept, expire_archive, prepare_archive
from pgoutbox.dispatch.rounds import Rounds
from pgoutbox.errors import RetryableError
from pgoutbox.events import DatabaseFailed, Pruned
from pgoutbox.inbox import first_time
from tests.support.dispatching import Scripted, database, dispatching, eventually, statuses, to
from tests.support.outbox_rows import fill
from tests.support.roles import login_role

if TYPE_CHECKING:
    from pgoutbox.database.pool import Database
    from pgoutbox.message import ClaimedMessage
    from tests.support.dispatching import Running

MODES: tuple[Mode, ...] = get_args(Mode)
DONE = {"status": "'done'", "pending_since": "NULL"}
OLD = {**DONE, "done_at": "now() - interval '8 days'"}
WEEK = timedelta(days=7)
WORKER = (
    "SELECT, UPDATE, DELETE ON outbox",
    "SELECT, UPDATE ON outbox_wakeup",
    "SELECT, INSERT, UPDATE, DELETE ON outbox_workers",
    "SELECT ON outbox_migrations",
    "EXECUTE ON FUNCTION outbox_archive_partitions()",
)
ARCHIVING = (
    "INSERT ON outbox_archive",
    "EXECUTE ON FUNCTION outbox_archive_prepare(integer)",
    "EXECUTE ON FUNCTION outbox_archive_expire(interval)",
)
BY_HAND = """
DO $$ BEGIN EXECUTE format(
    'CREATE TABLE by_hand_%s PARTITION OF outbox_archive FOR VALUES FROM (%L) TO (%L)', {days},
    date_trunc('day', now(), 'UTC') - {days} * interval '24 hours',
    date_trunc('day', now(), 'UTC') - ({days} - 1) * interval '24 hours');
END $$
"""


@pytest.fixture(autouse=True)
def _no_jitter(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(random, "random", lambda: 0.0)


@pytest.fixture
def by_hand(conn: psycopg.Connection) -> list[str]:
    """Two days of the archive: one that is over for long, and one of last week."""
    for days in (9, 5):
        conn.execute(BY_HAND.format(days=days).encode())
        conn.execute(f"ALTER TABLE by_hand_{days} OWNER TO outbox_owner".encode())
    return ["by_hand_9", "by_hand_5"]


def days_of(conn: psycopg.Connection[Any]) -> list[str]:
    return [name for (name,) in conn.execute("SELECT name FROM outbox_archive_partitions()")]


def archived(conn: psycopg.Connection[Any]) -> int:
    row = conn.execute("SELECT count(*) FROM outbox_archive").fetchone()
    assert row is not None
    count: int = row[0]
    return count


async def tended(running: Running, conn: psycopg.Connection[Any]) -> None:
    """Every sweep of the retention has had its turn, beside those of the worker itself."""
    if running.dispatcher.options.retention_mode == "archive":
        await eventually(lambda: len(days_of(conn)) >= 4)
    sweeps = Rounds(running.dispatcher)
    for sweep in (sweeps.archive, sweeps.prune):
        while await sweep() is not None:
            pass
    await sweeps.expire()


async def test_whoever_finds_the_days_made_needs_no_right_to_make_them(
    dsn: str, conn: psycopg.Connection
) -> None:
    with login_role(dsn, *WORKER) as role:
        async with database(role.dsn) as db:
            with pytest.raises(errors.InsufficientPrivilege):
                await prepare_archive(db)
            conn.execute("SELECT outbox_archive_prepare()")
            await prepare_archive(db)


async def test_what_was_kept_moves_to_the_days_that_are_there_in_batches(
    db: Database, conn: psycopg.Connection, by_hand: list[str]
) -> None:
    fill(conn, 5, **DONE, done_at="date_trunc('day', now(), 'UTC') - interval '119 hours'")
    fill(conn, 5, **DONE, done_at="now() - interval '3 days'")
    fill(conn, 2, status="'dead'", pending_since="NULL", done_at="now()")
    await prepare_archive(db)
    fill(conn, 5, **DONE, done_at="now()")
    assert [await archive_kept(db, limit=4) for _ in range(4)] == [4, 4, 2, 0]
    assert statuses(conn) == {"done": 5, "dead": 2}
    found = conn.execute(
        "SELECT tableoid::regclass::text, count(*) FROM outbox_archive GROUP BY 1 ORDER BY 1"
    ).fetchall()
    assert [count for _, count in found] == [5, 5]
    assert found[0][0] == by_hand[1]


async def test_nothing_moves_while_another_worker_prunes_or_moves(
    dsn: str, db: Database, conn: psycopg.Connection
) -> None:
    await prepare_archive(db)
    fill(conn, 5, **DONE, done_at="now()")
    with psycopg.connect(dsn) as other:
        other.execute("SELECT pg_advisory_xact_lock(7239162507031187526)")
        assert await archive_kept(db, limit=10) is None
    assert await archive_kept(db, limit=10) == 5


async def test_all_old_days_are_dropped_and_no_others(
    db: Database, conn: psycopg.Connection, by_hand: list[str]
) -> None:
    await prepare_archive(db)
    assert await expire_archive(db, keep=WEEK) == by_hand[:1]
    assert await expire_archive(db, keep=WEEK) == []
    assert len(days_of(conn)) == 5
    assert await expire_archive(db, keep=timedelta(0)) == by_hand[1:]


async def test_an_archive_that_was_never_used_needs_no_rights(dsn: str) -> None:
    with login_role(dsn, *WORKER) as role:
        async with database(role.dsn) as db:
            assert await expire_archive(db, keep=WEEK) == []


@pytest.mark.parametrize("mode", MODES)
async def test_old_messages_and_old_days_go_under_every_mode_and_dead_messages_never(
    dsn: str, conn: psycopg.Connection, by_hand: list[str], mode: Mode
) -> None:
    fill(conn, 10, **OLD)
    fill(conn, 3, **{**OLD, "done_at": "now() - interval '6 days'"})
    fill(conn, 2, **{**OLD, "status": "'dead'"})
    async with dispatching(dsn, to(Scripted()), retention_mode=mode) as running:
        await eventually(lambda: by_hand[0] not in days_of(conn))
        await running.events.seen(Pruned)
    assert statuses(conn) == {"done": 3, "dead": 2}
    assert by_hand[1] in days_of(conn)


@pytest.mark.parametrize("mode", ["keep", "delete"])
async def test_only_the_mode_archive_makes_days(
    dsn: str, conn: psycopg.Connection, mode: Mode
) -> None:
    async with dispatching(dsn, to(Scripted()), retention_mode=mode) as running:
        await tended(running, conn)
    assert days_of(conn) == []


async def test_a_worker_that_archives_makes_the_days_by_itself(
    dsn: str, conn: psycopg.Connection
) -> None:
    fill(conn, 50)
    async with dispatching(dsn, to(Scripted()), retention_mode="archive") as running:
        await running.events.finished(50)
        # Some may have been delivered in the moment before the day was there.
        await tended(running, conn)
    assert statuses(conn) == {}
    assert archived(conn) == 50
    assert len(days_of(conn)) == 4


async def test_what_is_finished_before_its_day_is_there_follows_within_the_next_round(
    dsn: str, conn: psycopg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rounds, "ARCHIVE_SECONDS", 0.05)
    fill(conn, 20)
    async with dispatching(dsn, to(Scripted()), retention_mode="archive") as running:
        with psycopg.connect(dsn) as other:
            # Nobody else is to make a day meanwhile.
            other.execute("SELECT pg_advisory_xact_lock(7239162507031187527)")
            await running.events.finished(20)
            kept = statuses(conn)
        await eventually(lambda: archived(conn) == 20)
    assert kept in ({"done": 20}, {})
    assert statuses(conn) == {}


async def test_a_worker_without_the_rights_delivers_keeps_and_says_why(
    dsn: str, conn: psycopg.Connection
) -> None:
    fill(conn, 20)
    with login_role(dsn, *WORKER) as role:
        async with dispatching(role.dsn, to(Scripted()), retention_mode="archive") as running:
            await running.events.finished(20)
            await running.events.seen(DatabaseFailed)
    told = {each.error for each in running.events.of(DatabaseFailed) if each.doing == "archive"}
    assert told == {"permission denied for function outbox_archive_prepare"}
    assert statuses(conn) == {"done": 20}


async def test_a_finalize_that_cannot_archive_says_why_the_message_stays(
    dsn: str, conn: psycopg.Connection
) -> None:
    conn.execute("SELECT outbox_archive_prepare()")
    fill(conn, 20)
    with login_role(dsn, *WORKER) as role:
        async with dispatching(role.dsn, to(Scripted()), retention_mode="archive") as running:
            await running.events.finished(20)
            await running.events.until(
                lambda: any(
                    "stays in the outbox: permission denied for table outbox_archive" in each.error
                    for each in running.events.of(DatabaseFailed)
                )
            )
    assert statuses(conn) == {"done": 20}


async def test_the_documented_role_archives_and_drops_old_days(
    dsn: str, conn: psycopg.Connection, by_hand: list[str]
) -> None:
    fill(conn, 20)
    with login_role(dsn, *WORKER, *ARCHIVING) as role:
        async with dispatching(role.dsn, to(Scripted()), retention_mode="archive") as running:
            await running.events.finished(20)
            await tended(running, conn)
            # The worker's own sweep may be the one that drops it, and be at it still.
            await eventually(lambda: by_hand[0] not in days_of(conn))
            assert running.events.of(DatabaseFailed) == []
    assert (statuses(conn), archived(conn)) == ({}, 20)


@pytest.mark.parametrize("order", list(permutations(MODES)))
async def test_modes_are_switched_on_a_live_table_in_any_order(
    dsn: str, conn: psycopg.Connection, order: tuple[Mode, ...]
) -> None:
    publisher = Scripted()
    for mode in order:
        fill(conn, 10)
        async with dispatching(dsn, to(publisher), retention_mode=mode) as running:
            await running.events.finished(10)
            await tended(running, conn)
            assert running.events.of(DatabaseFailed) == []
    assert len({message.id for message in publisher.taken}) == len(publisher.taken) == 30
    # What was kept before the archive was in use has moved there.
    kept_for_good = order.index("keep") > order.index("archive")
    assert statuses(conn) == ({"done": 10} if kept_for_good else {})
    assert archived(conn) == (10 if kept_for_good else 20)


async def test_workers_of_all_modes_share_a_table(dsn: str, conn: psycopg.Connection) -> None:
    fill(conn, 900)

    async def script(message: ClaimedMessage) -> None:
        if message.attempts == 1 and message.id % 3 == 0:
            raise RetryableError("not yet")

    publisher = Scripted(script)
    async with AsyncExitStack() as stack:
        for mode in MODES:
            await stack.enter_async_context(
                dispatching(dsn, to(publisher), retention_mode=mode, max_in_flight=20)
            )
        await eventually(lambda: len(publisher.taken) == 900)
    assert sorted(message.id for message in publisher.taken) == list(range(1, 901))
    assert statuses(conn).keys() <= {"done"}
    assert conn.execute("SELECT FROM outbox JOIN outbox_archive USING (id)").rowcount == 0


@pytest.mark.parametrize("mode", MODES)
async def test_a_dedup_key_is_remembered_as_long_as_its_message_is_in_the_outbox(
    dsn: str, conn: psycopg.Connection, mode: Mode
) -> None:
    remembered = mode == "keep"
    enqueue = "SELECT outbox_enqueue('order', '7', 'paid', '{}', dedup_key => 'order-7-paid')"
    conn.execute("SELECT outbox_archive_prepare()")
    publisher = Scripted()
    async with dispatching(dsn, to(publisher), retention_mode=mode) as running:
        first = conn.execute(enqueue).fetchone()
        await running.events.finished(1)
        assert conn.execute(enqueue).fetchone() == first
        if remembered:
            assert statuses(conn) == {"done": 1}
        else:
            await running.events.finished(2)
    effects = []
    for message in publisher.taken:
        with first_time(conn, "shop", message.message_id) as fresh:
            effects.append(fresh)
    assert effects == ([True] if remembered else [True, False])
