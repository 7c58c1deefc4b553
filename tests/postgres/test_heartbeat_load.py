"""What a worker's heartbeat says of its load, as the scaling law reads it."""

from __future__ import annotations

import asyncio
from statistics import fmean
from typing import TYPE_CHECKING, Any

import pytest

from pgoutbox.database import statistics
from pgoutbox.errors import DestinationUnavailable
from pgoutbox.events import BreakerChanged
from pgoutbox_operator import samples
from pgoutbox_operator.scaling import Policy, State
from pgoutbox_operator.scaling.throughput import measure
from tests.support.dispatching import Scripted, dispatching, raising, to, until_true
from tests.support.outbox_rows import fill

if TYPE_CHECKING:
    import psycopg

    from pgoutbox.message import ClaimedMessage
    from pgoutbox_operator.scaling import Outbox

POLICY = Policy(max_replicas=10)


def seen_by_the_operator(conn: psycopg.Connection[Any]) -> Outbox:
    return samples.outbox_of(statistics.read(conn, schema="public"), (), fresh=POLICY.stale)


async def test_the_law_learns_from_it_what_a_replica_could_do(
    dsn: str, conn: psycopg.Connection
) -> None:
    fill(conn, 300)

    async def slowly(_message: ClaimedMessage) -> None:
        await asyncio.sleep(0.02)

    async with dispatching(
        dsn, to(Scripted(slowly), concurrency=10), heartbeat_interval=0.05
    ) as running:
        written = await running.events.finished(300)
        await until_true(conn, b"SELECT (counters ->> 'published')::int = 300 FROM outbox_workers")
        _, rates = measure(State(), seen_by_the_operator(conn), POLICY)

    could = 10 / fmean(settled.seconds for settled in written)
    assert rates.finished / rates.busy == pytest.approx(could, rel=0.4)
    assert rates.failing == 0


async def test_failures_count_until_the_breaker_opens_and_its_probes_do_not(
    dsn: str, conn: psycopg.Connection
) -> None:
    fill(conn, 40)
    publisher = Scripted(raising(lambda: DestinationUnavailable("refused")))
    async with dispatching(dsn, to(publisher, concurrency=1), heartbeat_interval=0.05) as running:
        await running.events.seen(BreakerChanged)
        until_open = len(publisher.begun)
        await publisher.until(lambda: len(publisher.begun) > until_open)
        await until_true(
            conn,
            b"SELECT (counters ->> 'returned')::int > %s FROM outbox_workers",
            until_open,
        )
        outbox = seen_by_the_operator(conn)
        _, rates = measure(State(), outbox, POLICY)
    [worker] = outbox.workers
    assert worker.attempts == worker.failed == until_open
    assert rates.failing == 1
    assert worker.opened == {"default"}
