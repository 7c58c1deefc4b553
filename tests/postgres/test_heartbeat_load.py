"""What a worker's heartbeat says of its load, as the scaling law reads it."""

from __future__ import annotations

import asyncio
from statistics import fmean
from typing import TYPE_CHECKING, Any

import pytest

from pgoutbox.database import statistics
from pgoutbox.destinations.breaker import Breaker, BreakerLimits
from pgoutbox.errors import DestinationUnavailable
from pgoutbox.events import BreakerChanged
from pgoutbox_operator import samples
from pgoutbox_operator.scaling import Policy, State
from pgoutbox_operator.scaling.throughput import SAME_BEAT, Rates, measure
from tests.support.dispatching import Scripted, dispatching, hang, to, until_true
from tests.support.outbox_rows import fill

if TYPE_CHECKING:
    import psycopg

    from pgoutbox.message import ClaimedMessage
    from pgoutbox_operator.scaling import Outbox

POLICY = Policy(max_replicas=10)
BEATS: dict[str, Any] = {"heartbeat_interval": 0.05}


class Looks:
    """The law's, one after the other."""

    def __init__(self, conn: psycopg.Connection[Any]) -> None:
        self._conn = conn
        self._state = State()
        self._before = 0.0

    async def look(self) -> tuple[Outbox, Rates]:
        """At a heartbeat that is far enough from the last one for rates."""
        await until_true(
            self._conn,
            b"SELECT seen_at > greatest(to_timestamp(%s), started_at) + %s * interval '1 second'"
            b"  FROM outbox_workers",
            self._before,
            SAME_BEAT + 0.1,
        )
        found = statistics.read(self._conn, schema="public")
        outbox = samples.outbox_of(found, (), fresh=POLICY.stale)
        self._before = outbox.at
        self._state, rates = measure(self._state, outbox, POLICY)
        return outbox, rates


async def test_the_law_learns_from_it_what_a_replica_could_do(
    dsn: str, conn: psycopg.Connection
) -> None:
    async def slowly(_message: ClaimedMessage) -> None:
        await asyncio.sleep(0.02)

    looks = Looks(conn)
    async with dispatching(dsn, to(Scripted(slowly), concurrency=10), **BEATS) as running:
        _, idle = await looks.look()
        fill(conn, 100)
        written = await running.events.finished(100)
        await until_true(conn, b"SELECT (counters ->> 'published')::int = 100 FROM outbox_workers")
        _, rates = await looks.look()

    could = 10 / fmean(settled.seconds for settled in written)
    assert (idle.finished, idle.busy) == (0, 0)
    assert rates.finished / rates.busy == pytest.approx(could, rel=0.4)
    assert rates.failing == 0


async def test_failures_are_seen_until_the_breaker_opens_and_its_probes_are_not(
    dsn: str, conn: psycopg.Connection
) -> None:
    fill(conn, 40)
    allowed = asyncio.Semaphore(5)

    async def refuse(_message: ClaimedMessage) -> None:
        await allowed.acquire()
        raise DestinationUnavailable("refused")

    publisher = Scripted(refuse)
    breaker = Breaker(BreakerLimits(failures=10, pause=0.05, max_pause=0.05))
    looks = Looks(conn)
    async with dispatching(dsn, to(publisher, concurrency=1, breaker=breaker), **BEATS) as running:
        await until_true(conn, b"SELECT (counters ->> 'failed')::int = 5 FROM outbox_workers")
        closed, before = await looks.look()
        assert (before.failing, closed.workers[0].opened) == (1, frozenset())

        for _ in range(1000):
            allowed.release()
        await running.events.seen(BreakerChanged)
        await until_true(conn, b"SELECT (counters ->> 'failed')::int = 10 FROM outbox_workers")
        await looks.look()
        tried = len(publisher.begun)
        opened, after = await looks.look()
        assert len(publisher.begun) > tried
    [worker] = opened.workers
    assert worker.opened == {"default"}
    assert worker.attempts == worker.failed == 10
    assert (after.attempts, after.failing) == (0, 0)


async def test_a_destination_that_answers_nothing_does_not_look_like_a_full_worker(
    dsn: str, conn: psycopg.Connection
) -> None:
    fill(conn, 40)
    publisher = Scripted(hang)
    breaker = Breaker(BreakerLimits(failures=2, pause=0.01, max_pause=0.01))
    silent = to(publisher, concurrency=1, publish_timeout=0.1, breaker=breaker)
    looks = Looks(conn)
    async with dispatching(dsn, silent, **BEATS):
        await until_true(
            conn,
            b"SELECT destinations #>> '{default,breaker}' <> 'closed' FROM outbox_workers",
        )
        await looks.look()
        tried = len(publisher.begun)
        _, rates = await looks.look()
        assert len(publisher.begun) > tried
    # One of 200 messages that the worker has room for, and not its only slot.
    assert 0 < rates.busy < 0.1
