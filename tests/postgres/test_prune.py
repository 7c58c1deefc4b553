from __future__ import annotations

import random
from datetime import timedelta
from typing import TYPE_CHECKING

import psycopg

from pgoutbox.dispatch import rounds
from pgoutbox.dispatch.retention import prune
from pgoutbox.dispatch.rounds import Rounds
from pgoutbox.events import Pruned
from tests.support.dispatching import Scripted, database, dispatching, statuses, to, until_true
from tests.support.outbox_rows import fill, insert

if TYPE_CHECKING:
    import pytest

WEEK = timedelta(days=7)
OLD = {"done_at": "now() - interval '8 days'", "pending_since": "NULL"}


async def test_only_what_was_finished_long_ago_is_pruned(
    dsn: str, conn: psycopg.Connection
) -> None:
    fill(conn, 10, status="'done'", **OLD)
    fill(conn, 10, status="'dead'", **OLD)
    fill(conn, 10, status="'done'", done_at="now() - interval '6 days'", pending_since="NULL")
    fill(conn, 10, created_at="now() - interval '80 days'")
    async with database(dsn) as db:
        assert await prune(db, keep=WEEK, limit=1000) == 10
        assert await prune(db, keep=WEEK, limit=1000) == 0
    assert statuses(conn) == {"done": 10, "dead": 10, "pending": 10}


async def test_pruning_goes_by_batches_and_makes_progress_with_each(
    dsn: str, conn: psycopg.Connection
) -> None:
    fill(conn, 25, status="'done'", **OLD)
    async with database(dsn) as db:
        assert [await prune(db, keep=WEEK, limit=10) for _ in range(4)] == [10, 10, 5, 0]


async def test_one_worker_prunes_at_a_time_and_another_does_not_wait_for_it(
    dsn: str, conn: psycopg.Connection
) -> None:
    fill(conn, 10, status="'done'", **OLD)
    async with database(dsn) as db:
        with psycopg.connect(dsn) as other:
            other.execute("SELECT pg_advisory_xact_lock(7239162507031187526)")
            assert await prune(db, keep=WEEK, limit=1000) is None
        assert await prune(db, keep=WEEK, limit=1000) == 10


async def test_any_worker_prunes_while_it_runs(dsn: str, conn: psycopg.Connection) -> None:
    fill(conn, 2500, status="'done'", **OLD)
    fill(conn, 1, status="'dead'", **OLD)
    async with dispatching(dsn, to(Scripted()), prune_interval=0.05) as running:
        await running.events.until(
            lambda: sum(event.count for event in running.events.of(Pruned)) >= 2500
        )
    assert statuses(conn) == {"dead": 1}


async def test_a_round_that_ends_before_its_work_does_is_followed_by_another_at_once(
    dsn: str, conn: psycopg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rounds, "PRUNE_SECONDS", 0.0)
    monkeypatch.setattr(random, "random", lambda: 0.0)
    fill(conn, 3500, status="'done'", **OLD)
    async with dispatching(dsn, to(Scripted()), prune_interval=600.0) as running:
        pruned = await running.events.seen(Pruned, 4)
    assert [event.count for event in pruned] == [1000, 1000, 1000, 500]


async def test_workers_that_were_started_together_do_not_begin_to_prune_together(
    dsn: str, conn: psycopg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(random, "random", lambda: 0.5)
    fill(conn, 1, status="'done'", **OLD)
    async with dispatching(dsn, to(Scripted()), prune_interval=600.0):
        await until_true(conn, b"SELECT count(*) = 1 FROM outbox_workers")
        insert(conn)
        await until_true(conn, b"SELECT bool_and(status = 'done') FROM outbox")
    assert statuses(conn) == {"done": 2}


async def test_a_worker_whose_turn_is_taken_asks_again_soon_and_not_in_a_minute(
    dsn: str, conn: psycopg.Connection
) -> None:
    fill(conn, 10, status="'done'", **OLD)
    async with dispatching(dsn, to(Scripted()), prune_interval=600.0) as running:
        sweeps = Rounds(running.dispatcher)
        with psycopg.connect(dsn) as other:
            other.execute("SELECT pg_advisory_xact_lock(7239162507031187526)")
            pause = await sweeps.prune()
            assert pause is not None
            assert 1.0 <= pause <= 5.0
        assert await sweeps.prune() is None
    assert statuses(conn) == {}


async def test_a_repeat_after_delivery_and_pruning_carries_the_same_message_id(
    dsn: str, conn: psycopg.Connection
) -> None:
    publisher = Scripted()
    async with dispatching(dsn, to(publisher)) as running:
        for _ in range(2):
            insert(conn, dedup_key="order-7 paid")
            await until_true(conn, b"SELECT bool_and(status = 'done') FROM outbox")
            assert await prune(running.db, keep=timedelta(seconds=-1), limit=10) == 1
    first, second = publisher.taken
    assert first.id != second.id
    assert first.message_id == second.message_id
