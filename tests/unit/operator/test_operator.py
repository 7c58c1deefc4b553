"""The whole operator before an API server that comes, goes, and refuses."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from tests.support.kube import IN_SHOP, LEASES, SCALE, STATUS, scaler
from tests.support.operating import Running, eventually, running

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

DEFINITION = "get /apis/pgoutbox.io/v1alpha1"


@pytest.fixture
async def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Running]:
    monkeypatch.setenv("POD_ID", "test")
    async with running(tmp_path / "token") as made:
        yield made


def busy(**changes: Any) -> dict[str, Any]:
    return scaler(seedRatePerReplica="50", **changes)


async def test_an_object_is_looked_after_and_nothing_is_left_on_it(run: Running) -> None:
    run.outbox.has_backlog()
    run.kube.put(busy())
    run.start()
    await eventually(lambda: run.kube.replicas == 7)
    await eventually(lambda: run.kube.conditions.get("Ready") == ("True", "Reconciled"))
    written = {request.url.path for request in run.kube.mock["patch"]}
    assert written == {SCALE, STATUS}
    for request in run.kube.mock[f"patch {STATUS}"]:
        assert json.loads(request.body)["metadata"] == {"uid": "1"}


async def test_an_object_that_comes_later_is_looked_after(run: Running) -> None:
    run.outbox.has_backlog()
    run.start()
    await eventually(lambda: run.kube.watches)
    run.kube.put(busy())
    await eventually(lambda: run.kube.replicas == 7)


async def test_an_object_that_is_deleted_is_left_alone(run: Running) -> None:
    run.kube.put(busy())
    run.start()
    await eventually(lambda: run.kube.watches and run.kube.status)
    run.kube.tell({"type": "DELETED", "object": run.kube.scalers.pop("orders")})
    assert run.operator is not None
    supervisor = run.operator.supervisor
    await eventually(lambda: not supervisor.reconcilers and not supervisor.databases)


async def test_a_changed_spec_is_acted_upon_at_once_and_our_own_status_is_not(
    run: Running,
) -> None:
    run.outbox.has_backlog()
    run.kube.put(busy(mode="Recommend"))
    run.start()
    # One visit for the object, and one for the first look at its database.
    await eventually(lambda: len(run.kube.mock[f"get {SCALE}"]) == 2)
    await eventually(lambda: run.kube.watches and "desiredReplicas" in run.kube.status)
    looked = len(run.kube.mock[f"get {SCALE}"])
    echo = busy(mode="Recommend") | {"status": run.kube.status}
    run.kube.put(echo)
    changed = busy(mode="Auto")
    changed["metadata"]["generation"] = 2
    run.kube.put(changed)
    await eventually(lambda: run.kube.replicas == 7, within=5)
    # One visit for the change; none for the echo, which came first.
    assert len(run.kube.mock[f"get {SCALE}"]) == looked + 1


async def test_a_watch_that_drops_is_taken_up_again(run: Running) -> None:
    run.outbox.has_backlog()
    run.start()
    await eventually(lambda: run.kube.watches)
    first = run.kube.watches[0]
    run.kube.tell(None)
    await eventually(lambda: run.kube.watches and first not in run.kube.watches)
    run.kube.put(busy())
    await eventually(lambda: run.kube.replicas == 7)


async def test_a_version_that_is_too_old_brings_a_new_list(run: Running) -> None:
    run.outbox.has_backlog()
    run.start()
    await eventually(lambda: run.kube.watches)
    run.kube.scalers["orders"] = busy()
    gone = {"kind": "Status", "code": 410, "message": "too old", "metadata": {}}
    run.kube.tell({"type": "ERROR", "object": gone})
    await eventually(lambda: run.kube.replicas == 7)


@pytest.mark.parametrize("status", [401, 403, 429, 503])
async def test_a_refused_list_is_asked_for_again_until_it_is_given(
    run: Running, status: int
) -> None:
    run.outbox.has_backlog()
    run.kube.put(busy())
    run.kube.mock[f"get {IN_SHOP}"][:2] << status
    run.start()
    await eventually(lambda: run.kube.replicas == 7)
    assert run.alive
    errors = run.operator.permissions.errors if run.operator else {}
    assert errors.get(("list", "outboxscalers"), 0) == (2 if status == 403 else 0)


async def test_a_new_token_is_used_with_the_next_request(run: Running, tmp_path: Path) -> None:
    run.kube.put(busy())
    run.start()
    await eventually(lambda: run.kube.status)
    (tmp_path / "token").write_text("second\n", encoding="utf-8")
    run.outbox.has_backlog()
    changed = busy(maxReplicas=5)
    changed["metadata"]["generation"] = 2
    run.kube.put(changed)
    await eventually(lambda: run.kube.tokens[-1] == "Bearer second")
    assert run.kube.tokens[0] == "Bearer first"


async def test_a_definition_that_is_not_there_yet_is_waited_for(
    run: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pgoutbox_operator.run.DEFINITION_SECONDS", 0.05)
    run.outbox.has_backlog()
    run.kube.put(busy())
    run.kube.mock[DEFINITION][:3] << 404
    run.start()
    await eventually(lambda: len(run.kube.mock[DEFINITION]) > 2)
    assert run.operator is not None
    await eventually(lambda: run.kube.replicas == 7)
    assert run.operator.readiness.ready


async def test_it_stops_at_once_and_scales_nothing(run: Running) -> None:
    run.kube.put(busy())
    run.start()
    await eventually(lambda: run.kube.status)
    assert await run.stop() < 8
    assert run.kube.replicas == 2


async def test_the_lease_is_taken_before_anything_is_written_and_given_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("POD_NAMESPACE", "shop")
    monkeypatch.setenv("POD_NAME", "operator-1")
    async with running(tmp_path / "token", lease=True) as run:
        run.outbox.has_backlog()
        run.kube.put(busy())
        run.start()
        await eventually(lambda: run.kube.replicas == 7)
        asked = run.kube.asked
        assert asked.index(("POST", LEASES)) < asked.index(("PATCH", SCALE))
        lease = run.kube.leases["pgoutbox-operator"]["spec"]
        assert lease["holderIdentity"] == "operator-1"
        await run.stop()
        assert run.kube.leases["pgoutbox-operator"]["spec"]["holderIdentity"] == ""


async def test_whoever_takes_over_goes_on_from_what_the_other_one_wrote(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("POD_NAMESPACE", "shop")
    monkeypatch.setenv("POD_NAME", "operator-2")
    async with running(tmp_path / "token", lease=True) as run:
        lease = {"holderIdentity": "operator-1", "leaseDurationSeconds": 15}
        metadata = {"name": "pgoutbox-operator", "namespace": "shop", "resourceVersion": "1"}
        run.kube.leases["pgoutbox-operator"] = {"metadata": metadata, "spec": lease}
        run.kube.put(busy())
        run.start()
        await eventually(lambda: run.kube.watches)
        written = {"lastScaleTime": "2026-01-01T00:00:00Z", "lastScaleReason": "Backlog"}
        run.kube.statuses["orders"] = dict(written)
        run.kube.put(busy() | {"status": dict(written)})
        lease["holderIdentity"] = ""
        await eventually(lambda: run.kube.conditions.get("Ready") == ("True", "Reconciled"))
        assert run.kube.status["lastScaleTime"] == "2026-01-01T00:00:00Z"
