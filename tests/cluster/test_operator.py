"""One operator, a real API server, and what people do to it."""

from __future__ import annotations

import signal
import time
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest

from tests.support.api_server import SCALER, Shop, conditions
from tests.support.operator_process import OperatorProcess, operating
from tests.support.outbox_rows import fill

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    import psycopg

TICK = 5
"""Seconds; the shortest that the definition allows."""
QUICK = {"periodSeconds": TICK}


async def a_scaler(place: Shop, name: str = SCALER, **changes: Any) -> None:
    """Of which one replica publishes 50 messages a second."""
    await place.add_scaler(
        name, **{"seedRatePerReplica": "50", "scaleUp": QUICK, "maxReplicas": 7} | changes
    )


@asynccontextmanager
async def scaled(
    place: Shop, logs: Path, name: str = SCALER, **changes: Any
) -> AsyncIterator[OperatorProcess]:
    """An operator that has looked at the scaler."""
    async with operating(place.namespace, logs) as operator:
        await a_scaler(place, name, **changes)
        await place.until_condition("Ready", "True", "Reconciled", name=name)
        yield operator


async def test_a_backlog_brings_more_replicas_within_a_tick_and_a_second(
    place: Shop, logs: Path, conn: psycopg.Connection, record_property: Any
) -> None:
    async with scaled(place, logs):
        assert await place.replicas() == 1
        fill(conn, 20_000)
        began = time.monotonic()
        await place.until_more_replicas(1, within=TICK + 5)
        took = time.monotonic() - began
        said = await place.until_event("ScaledUp")
        found = await place.api.get(place.scaler())
    record_property("seconds", took)
    assert took <= TICK + 1
    assert said.startswith("from 1 to ")
    assert "10000 messages ready" in said
    assert found["status"]["observed"]["pendingMessages"] >= 10_000


async def test_what_it_writes_is_replicas_and_status_and_nothing_else(
    place: Shop, logs: Path, conn: psycopg.Connection
) -> None:
    fill(conn, 20_000)
    async with scaled(place, logs):
        await place.until_replicas(7)
        body = await place.api.get(place.scaler())
        deployment = await place.api.get(place.deployment())
    assert "finalizers" not in body["metadata"]
    assert "annotations" not in body["metadata"]
    ours = [
        each
        for each in deployment["metadata"]["managedFields"]
        if each.get("subresource") == "scale"
    ]
    # An update, not an apply: whoever applies the Deployment without replicas meets no conflict.
    assert [(each["operation"], each["fieldsV1"]) for each in ours] == [
        ("Update", {"f:spec": {"f:replicas": {}}})
    ]
    columns, rows = await place.api.columns(place.scalers)
    shown = dict(zip(columns, rows[0], strict=True))
    assert (shown["Replicas"], shown["Desired"], shown["Ready"]) == (7, 7, "True")
    assert shown["Pending"] >= 10_000


async def test_a_changed_spec_is_acted_upon_at_once(
    place: Shop, logs: Path, conn: psycopg.Connection
) -> None:
    fill(conn, 20_000)
    async with scaled(place, logs, mode="Recommend", scaleUp={"periodSeconds": 60}):
        assert await place.replicas() == 1
        await place.api.merge(place.scaler(), {"spec": {"mode": "Auto"}})
        await place.until_more_replicas(1, within=5)


async def test_advice_changes_nothing_but_the_status(
    place: Shop, logs: Path, conn: psycopg.Connection
) -> None:
    fill(conn, 20_000)
    before = (await place.api.get(place.deployment()))["metadata"]["generation"]
    async with scaled(place, logs, mode="Recommend"):
        found = await place.api.until(
            place.scaler(), lambda body: body["status"].get("desiredReplicas", 1) > 1
        )
    assert conditions(found)["ScalingActive"]["reason"] == "RecommendMode"
    assert (await place.api.get(place.deployment()))["metadata"]["generation"] == before


async def test_nothing_to_do_for_long_enough_ends_the_last_worker_and_one_message_wakes_it(
    place: Shop, logs: Path, conn: psycopg.Connection
) -> None:
    down = {"periodSeconds": 1, "stabilizationWindowSeconds": 0}
    async with scaled(place, logs, minReplicas=0, idleSeconds=1, scaleDown=down):
        await place.until_replicas(0, within=4 * TICK)
        fill(conn, 1)
        began = time.monotonic()
        await place.until_more_replicas(0, within=TICK + 5)
        assert time.monotonic() - began <= TICK + 1


async def test_somebody_elses_replicas_are_adopted_and_told(place: Shop, logs: Path) -> None:
    async with scaled(place, logs):
        await place.scale(5)
        said = await place.until_event("ExternalScale")
        assert "5 replicas instead of 1" in said
        assert await place.replicas() == 5


async def test_a_pause_lasts_until_it_is_lifted(
    place: Shop, logs: Path, conn: psycopg.Connection
) -> None:
    fill(conn, 20_000)
    async with scaled(place, logs, paused="All"):
        await place.until_condition("Paused", "True", "All")
        assert await place.replicas() == 1
        await place.api.merge(place.scaler(), {"spec": {"paused": "None"}})
        await place.until_replicas(7)


async def test_an_autoscaler_of_the_same_target_is_refused_until_it_goes(
    place: Shop, logs: Path, conn: psycopg.Connection
) -> None:
    autoscaler = {
        "metadata": {"name": "by-cpu"},
        "spec": {
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "workers"},
            "maxReplicas": 3,
        },
    }
    await place.api.create(place.autoscalers, autoscaler)
    fill(conn, 20_000)
    async with operating(place.namespace, logs):
        await a_scaler(place)
        told = await place.until_condition("Ready", "False", "TargetConflict")
        assert "by-cpu" in told["message"]
        assert await place.events("TargetConflict") == [told["message"]]
        assert await place.replicas() == 1
        await place.api.delete(f"{place.autoscalers}/by-cpu")
        await place.until_replicas(7)


async def test_the_second_scaler_of_a_target_does_nothing_while_the_first_is_there(
    place: Shop, logs: Path
) -> None:
    async with scaled(place, logs):
        await a_scaler(place, "second")
        told = await place.until_condition("Ready", "False", "TargetConflict", name="second")
        assert SCALER in told["message"]
        await place.api.delete(place.scaler())
        await place.until_condition("Ready", "True", "Reconciled", name="second")


async def test_a_target_that_comes_later_is_scaled(
    bare: Shop, logs: Path, dsn: str, conn: psycopg.Connection
) -> None:
    fill(conn, 20_000)
    await bare.add_secret(dsn)
    async with operating(bare.namespace, logs):
        await a_scaler(bare)
        told = await bare.until_condition("Ready", "False", "TargetNotFound")
        assert "workers" in told["message"]
        await bare.add_deployment()
        await bare.until_replicas(7)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
async def test_a_restart_changes_no_replicas(
    place: Shop, logs: Path, conn: psycopg.Connection, number: signal.Signals
) -> None:
    fill(conn, 20_000)
    async with scaled(place, logs) as operator:
        await place.until_replicas(7)
        await place.api.until(place.scaler(), lambda body: body["status"]["desiredReplicas"] == 7)
        code = await operator.end(number)
    assert code == (0 if number == signal.SIGTERM else -signal.SIGKILL)
    conn.execute("TRUNCATE outbox")
    before = await place.api.get(place.deployment())
    scaled_at = (await place.api.get(place.scaler()))["status"]["lastScaleTime"]
    async with operating(place.namespace, logs, name="next") as second:
        # Two decisions about an outbox that needs nobody.
        await second.until_visits(2)
        after = await place.api.get(place.deployment())
        status = (await place.api.get(place.scaler()))["status"]
    assert after["metadata"]["generation"] == before["metadata"]["generation"]
    assert status["lastScaleTime"] == scaled_at


async def test_objects_and_namespaces_are_deleted_at_once_with_no_operator_there(
    place: Shop, logs: Path
) -> None:
    async with scaled(place, logs) as operator:
        await a_scaler(place, "second", scaleTargetRef={"name": "others"})
        await place.until_condition("Ready", "False", "TargetNotFound", name="second")
        await operator.end(signal.SIGKILL)
    await place.api.delete(place.scaler())
    assert await place.api.until_gone(place.scaler(), within=2) < 2
    path = f"/api/v1/namespaces/{place.namespace}"
    await place.api.delete(path)
    assert await place.api.until_gone(path, within=30) < 15


async def test_a_new_password_is_used_without_a_restart(
    place: Shop, logs: Path, dsn: str, conn: psycopg.Connection
) -> None:
    await place.change_secret("postgresql://nobody:wrong@127.0.0.1:1/shop")
    async with operating(place.namespace, logs):
        await a_scaler(place)
        told = await place.until_condition(
            "MetricsAvailable", "False", "DatabaseUnreachable", within=40
        )
        assert "wrong" not in str(told)
        fill(conn, 20_000)
        await place.change_secret(dsn)
        await place.until_replicas(7)
