"""What becomes of everything while no operator runs, or while it cannot see."""

from __future__ import annotations

import asyncio
from signal import SIGKILL, SIGTERM, Signals
from typing import TYPE_CHECKING, NamedTuple

from tests.support.api_server import SCALER
from tests.support.operator_process import TICK, a_scaler, operating, scaled
from tests.support.outbox_rows import fill
from tests.support.roles import login_role

if TYPE_CHECKING:
    from pathlib import Path

    import psycopg

    from tests.support.api_server import Shop


async def test_a_restart_changes_no_replicas(
    place: Shop, beside: Shop, logs: Path, conn: psycopg.Connection
) -> None:
    fill(conn, 20_000)
    await asyncio.gather(restart(place, logs, SIGTERM), restart(beside, logs, SIGKILL))


async def restart(place: Shop, logs: Path, number: Signals) -> None:
    """In the middle of a backlog, and at rest, with some replicas and with none."""
    others = {"resting": 3, "asleep": 0}
    for name, replicas in others.items():
        await place.add_deployment(name, replicas=replicas)
    async with scaled(place, logs, operator=f"before-{number.name}") as operator:
        for name in others:
            target = {"scaleTargetRef": {"name": name}, "minReplicas": 0}
            await a_scaler(place, name, destinations=["audit"], **target)
            await place.until_condition("Ready", "True", "Reconciled", name=name)
        await place.until_replicas(7)
        await place.api.until(place.scaler(), lambda body: body["status"]["desiredReplicas"] == 7)
        code = await operator.end(number)
    assert code == (0 if number == SIGTERM else -SIGKILL)
    targets = {"workers": SCALER} | {name: name for name in others}
    before = [await decided(place, *each) for each in targets.items()]
    assert [each.replicas for each in before] == [7, 3, 0]
    async with operating(place.namespace, logs, name=f"after-{number.name}") as operator:
        # Of the first one nothing is decided yet.
        await operator.until_visits(3, *targets.values())
        assert [await decided(place, *each) for each in targets.items()] == before


class Decided(NamedTuple):
    """What a decision would change."""

    replicas: int
    generation: int
    desired: int
    scaled_at: str | None


async def decided(place: Shop, target: str, scaler: str) -> Decided:
    deployment = await place.api.get(place.deployment(target))
    status = (await place.api.get(place.scaler(scaler)))["status"]
    return Decided(
        replicas=deployment["spec"]["replicas"],
        generation=deployment["metadata"]["generation"],
        desired=status["desiredReplicas"],
        scaled_at=status.get("lastScaleTime"),
    )


async def test_objects_and_namespaces_are_deleted_at_once_with_no_operator_there(
    place: Shop, logs: Path
) -> None:
    async with scaled(place, logs) as operator:
        await a_scaler(place, "second", scaleTargetRef={"name": "others"})
        await place.until_condition("Ready", "False", "TargetNotFound", name="second")
        await operator.end(SIGKILL)
    await place.api.delete(place.scaler())
    assert await place.api.until_gone(place.scaler(), within=2) < 2
    path = f"/api/v1/namespaces/{place.namespace}"
    await place.api.delete(path)
    assert await place.api.until_gone(path, within=30) < 15


async def test_credentials_that_were_rotated_are_taken_from_the_secret_without_a_restart(
    place: Shop, logs: Path, dsn: str, conn: psycopg.Connection
) -> None:
    right = "EXECUTE ON FUNCTION outbox_stats(integer)"
    with login_role(dsn, right) as old, login_role(dsn, right) as new:
        # One that asks for no password proves nothing by it: the name tells them apart as well.
        await place.change_secret(old.dsn)
        async with scaled(place, logs):
            conn.execute(f"ALTER ROLE {old.name} NOLOGIN PASSWORD 'another'".encode())
            conn.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = %s",
                [old.name],
            )
            fill(conn, 20_000)
            told = await place.until_condition(
                "MetricsAvailable", "False", "DatabaseUnreachable", within=5 * TICK
            )
            assert old.name in told["message"]
            assert await place.replicas() == 1
            await place.change_secret(new.dsn)
            await place.until_replicas(7)
            [user] = conn.execute(
                "SELECT usename FROM pg_stat_activity WHERE application_name = 'pgoutbox-operator'"
                " AND datname = current_database()"
            ).fetchall()
            assert user == (new.name,)
