"""How soon something happens, by the clock of whoever waits for it."""

from __future__ import annotations

import asyncio
import re
import time
from typing import TYPE_CHECKING, Any

from tests.support.operator_process import TICK, a_scaler, operating, scaled
from tests.support.outbox_rows import fill
from tests.support.workers import WorkerProcess

if TYPE_CHECKING:
    from pathlib import Path

    import psycopg

    from tests.support.api_server import Shop

USUAL_TICK = 15
DOWN_AT_ONCE = {"periodSeconds": 1, "stabilizationWindowSeconds": 0, "maxPercent": 100}


async def test_a_backlog_brings_more_replicas_within_a_tick_and_a_second(
    place: Shop, beside: Shop, logs: Path, conn: psycopg.Connection, record_property: Any
) -> None:
    async def reaction(where: Shop) -> float:
        await where.until_more_replicas(1, within=30)
        return time.monotonic() - began

    async with (
        scaled(place, logs, operator="quick"),
        scaled(beside, logs, operator="usual", scaleUp={}),
    ):
        assert [await place.replicas(), await beside.replicas()] == [1, 1]
        fill(conn, 20_000)
        began = time.monotonic()
        quick, usual = await asyncio.gather(reaction(place), reaction(beside))
        said = await place.until_event("ScaledUp")
        found = await place.api.get(place.scaler())
    record_property(f"seconds at ticks of {TICK}", quick)
    record_property(f"seconds at ticks of {USUAL_TICK}", usual)
    assert (quick <= TICK + 1, usual <= USUAL_TICK + 1) == (True, True)
    assert said.startswith("from 1 to ")
    assert "10000 messages ready" in said
    assert found["status"]["observed"]["pendingMessages"] >= 10_000


async def test_a_new_scaler_is_acted_upon_at_once(
    place: Shop, logs: Path, conn: psycopg.Connection, record_property: Any
) -> None:
    fill(conn, 20_000)
    async with operating(place.namespace, logs):
        began = time.monotonic()
        await a_scaler(place, scaleUp={})
        await place.until_more_replicas(1)
        took = time.monotonic() - began
    record_property("seconds", took)
    assert took <= 2


async def test_a_changed_spec_is_acted_upon_at_once(
    place: Shop, logs: Path, conn: psycopg.Connection, record_property: Any
) -> None:
    fill(conn, 20_000)
    async with scaled(place, logs, mode="Recommend", scaleUp={"periodSeconds": 60}):
        assert await place.replicas() == 1
        began = time.monotonic()
        await place.api.merge(place.scaler(), {"spec": {"mode": "Auto"}})
        await place.until_more_replicas(1)
        took = time.monotonic() - began
    record_property("seconds", took)
    assert took <= 1


async def test_nothing_to_do_for_long_enough_ends_the_last_worker_and_one_message_wakes_it(
    place: Shop, logs: Path, conn: psycopg.Connection, record_property: Any
) -> None:
    async with scaled(place, logs, minReplicas=0, idleSeconds=1, scaleDown=DOWN_AT_ONCE):
        await place.until_replicas(0, within=4 * TICK)
        fill(conn, 1)
        began = time.monotonic()
        await place.until_more_replicas(0, within=TICK + 5)
        took = time.monotonic() - began
    record_property("seconds to wake up", took)
    assert took <= TICK + 1


async def test_replicas_come_for_a_backlog_and_go_while_a_worker_is_faster_than_was_thought(
    place: Shop, logs: Path, dsn: str, conn: psycopg.Connection
) -> None:
    fill(conn, 3_000)
    async with scaled(place, logs, scaleDown=DOWN_AT_ONCE):
        await place.until_more_replicas(1)
        # 200 a second for some heartbeats; the scaler was told 50.
        slots = {"DATABASE__INSECURE": "true", "DESTINATIONS__DEFAULT__CONCURRENCY": "20"}
        worker = WorkerProcess(dsn, "noop://?delay_ms=100", **slots)
        with await asyncio.to_thread(worker.started):
            await place.until_replicas(1, within=60)
        said = await place.until_event("ScaledDown", "to 1 replicas (Surplus)")
    measured = re.search(r", ([\d.]+)/s per replica", said)
    assert measured is not None, said
    assert 60 < float(measured[1]) <= 200
