"""One operator, a real API server, and what people do to it."""

from __future__ import annotations

import asyncio
import re
import subprocess
import sys
from typing import TYPE_CHECKING

from tests.support.api_server import API, SCALER, Shop, conditions, shop
from tests.support.operator_process import a_scaler, operating, scaled
from tests.support.outbox_rows import fill

if TYPE_CHECKING:
    from pathlib import Path

    import psycopg

    from tests.support.api_server import ApiServer


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


async def test_events_are_found_by_whoever_describes_the_scaler(
    place: Shop, logs: Path, conn: psycopg.Connection
) -> None:
    fill(conn, 3_000)
    async with scaled(place, logs):
        await place.until_event("ScaledUp")
    of = (await place.api.get(place.scaler()))["metadata"]
    found = await place.described(
        **{
            "involvedObject.kind": "OutboxScaler",
            "involvedObject.namespace": place.namespace,
            "involvedObject.name": SCALER,
            "involvedObject.uid": of["uid"],
        }
    )
    said = [each for each in found if each["reason"] == "ScaledUp"]
    assert [
        (each["involvedObject"]["apiVersion"], each["type"], each["source"]["component"])
        for each in said
    ] == [(API, "Normal", "pgoutbox-operator")] * len(said)
    # From, to, why, and by which numbers.
    assert re.fullmatch(
        r"from 1 to \d replicas \(Backlog\): \d+ messages ready, the oldest for \d+ s,"
        r" \S+/s arriving, 50/s per replica",
        min(each["message"] for each in said),
    )


async def test_whoever_asks_for_reasons_is_told_them_and_nothing_is_changed(
    place: Shop, conn: psycopg.Connection
) -> None:
    fill(conn, 3_000)
    await a_scaler(place)
    command = [sys.executable, "-m", "pgoutbox_operator", "explain", "--seconds", "1"]
    done = await asyncio.to_thread(
        subprocess.run,
        [*command, f"{place.namespace}/{SCALER}"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert "more are needed to drain the backlog in time" in done.stdout
    assert await place.replicas() == 1
    assert "status" not in await place.api.get(place.scaler())


async def test_of_several_namespaces_those_that_were_named_are_looked_after(
    place: Shop, api: ApiServer, logs: Path, dsn: str, conn: psycopg.Connection
) -> None:
    fill(conn, 20_000)
    async with shop(api) as second, shop(api) as strange:
        for each in (second, strange):
            await each.add_secret(dsn)
            await each.add_deployment()
        for each in (place, second, strange):
            await a_scaler(each)
        named = f"{place.namespace} {second.namespace}"
        async with operating(None, logs, PGOUTBOX_OPERATOR_NAMESPACES=named):
            await place.until_replicas(7)
            await second.until_replicas(7)
            await second.until_event("ScaledUp")
            assert "status" not in await api.get(strange.scaler())
            assert await strange.replicas() == 1


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
