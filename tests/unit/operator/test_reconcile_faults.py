"""What a visit makes of an API server that refuses, or that does not answer."""

from __future__ import annotations

from typing import Any

import kmock
import pytest

from tests.support.kube import AUTOSCALERS, EVENTS, PODS, SCALE, STATUS, scaler
from tests.support.visiting import Visits, visits

READING = (SCALE, PODS, AUTOSCALERS)


def answer(visits: Visits, asked: str, status: int, *, times: int | None = None) -> Any:
    """Refuse a request, ``times`` or always. What is returned tells whether it was asked."""
    place = visits.kube.mock[asked]
    limited = place if times is None else place[:times]
    return limited << status


async def scaling(v: Visits) -> None:
    v.outbox.has_backlog()
    await v.visit()


async def test_a_stale_version_is_tried_again_with_the_new_one() -> None:
    async with visits(seedRatePerReplica="50") as v:
        answer(v, f"patch {SCALE}", 409, times=1)
        await scaling(v)
        assert v.kube.replicas == 7
        assert len(v.kube.mock[f"patch {SCALE}"]) == 2


async def test_a_version_that_stays_stale_is_left_to_the_next_visit() -> None:
    async with visits(seedRatePerReplica="50") as v:
        answer(v, f"patch {SCALE}", 409, times=2)
        await scaling(v)
        assert (v.kube.replicas, v.kube.said) == (2, [])
        assert v.kube.conditions["Ready"] == ("False", "ClusterError")
        await v.visit()
        assert v.kube.replicas == 7
        assert v.kube.said == ["ScaledUp"]


@pytest.mark.parametrize("status", [403, 404, 422, 429, 500, 503])
async def test_a_refused_write_is_no_change_and_no_end(status: int) -> None:
    async with visits(seedRatePerReplica="50") as v:
        # A 422 is taken for a conflict and tried once more.
        answer(v, f"patch {SCALE}", status, times=2 if status == 422 else 1)
        await scaling(v)
        reason = "Forbidden" if status == 403 else "ClusterError"
        assert v.kube.conditions["Ready"] == ("False", reason)
        assert v.kube.said == []
        await v.visit()
        assert v.kube.replicas == 7
        assert v.kube.said == ["ScaledUp"]
        assert v.kube.conditions["Ready"] == ("True", "Reconciled")


@pytest.mark.parametrize("asked", READING)
@pytest.mark.parametrize("status", [403, 429, 500, 503])
async def test_what_cannot_be_read_holds_the_replicas(asked: str, status: int) -> None:
    async with visits(seedRatePerReplica="50") as v:
        answer(v, f"get {asked}", status, times=1)
        await scaling(v)
        assert v.kube.replicas == 2
        assert len(v.kube.mock[f"patch {SCALE}"]) == 0
        assert v.kube.conditions["Ready"][0] == "False"
        await v.visit()
        assert v.kube.replicas == 7


async def test_a_target_that_is_not_there_is_told_and_waited_for() -> None:
    async with visits() as v:
        answer(v, f"get {SCALE}", 404, times=1)
        await v.visit()
        assert v.kube.conditions["Ready"] == ("False", "TargetNotFound")
        await v.visit()
        assert v.kube.conditions["Ready"] == ("True", "Reconciled")


@pytest.mark.parametrize(
    ("asked", "right"),
    [
        (f"get {SCALE}", "get deployments/scale"),
        (f"patch {SCALE}", "patch deployments/scale"),
        (f"get {PODS}", "list pods"),
        (f"get {AUTOSCALERS}", "list horizontalpodautoscalers"),
        (f"post {EVENTS}", "create events"),
    ],
)
async def test_a_missing_right_is_named_until_it_is_given(asked: str, right: str) -> None:
    async with visits(seedRatePerReplica="50") as v:
        answer(v, asked, 403, times=1)
        await scaling(v)
        permitted = next(c for c in v.kube.status["conditions"] if c["type"] == "Permitted")
        assert (permitted["status"], permitted["reason"]) == ("False", "Forbidden")
        assert right in permitted["message"]
        assert sum(v.permissions.errors.values()) == 1
        # An event is asked for again by the next thing worth telling.
        v.kube.replicas, v.kube.version = 3, 50
        await v.visit()
        await v.visit()
        assert v.kube.conditions["Permitted"] == ("True", "Permitted")


async def test_a_status_that_may_not_be_written_is_counted_and_nothing_else_stops() -> None:
    async with visits(seedRatePerReplica="50") as v:
        answer(v, f"patch {STATUS}", 403)
        await scaling(v)
        assert v.kube.replicas == 7
        # Once before the replicas are written, to see whether the object is still there.
        assert v.permissions.errors["patch", "outboxscalers/status"] == 2
        assert not v.reconciler.gone


async def test_an_object_that_is_gone_is_not_visited_again() -> None:
    async with visits() as v:
        v.kube.deleted.add("1")
        await v.visit()
        assert v.reconciler.gone


async def test_an_object_is_not_gone_while_its_kind_is_not_known() -> None:
    async with visits(seedRatePerReplica="50") as v:
        answer(v, f"patch {STATUS}", 404, times=2)
        await scaling(v)
        assert not v.reconciler.gone
        assert v.kube.replicas == 2
        await v.visit()
        assert v.kube.replicas == 7


async def test_an_object_that_is_gone_though_nobody_told_scales_nothing() -> None:
    async with visits(seedRatePerReplica="50") as v:
        v.kube.deleted.add("1")
        await scaling(v)
        assert v.kube.replicas == 2
        assert v.kube.said == []
        assert v.reconciler.gone


async def test_an_object_that_is_another_one_by_now_scales_nothing() -> None:
    async with visits(seedRatePerReplica="50") as v:
        v.kube.deleted.add("1")
        v.kube.put(scaler(uid="2"))
        await scaling(v)
        assert v.kube.replicas == 2
        assert len(v.kube.mock[f"patch {SCALE}"]) == 0


async def test_a_spec_that_has_changed_though_nobody_told_scales_nothing() -> None:
    async with visits(seedRatePerReplica="50") as v:
        changed = scaler(seedRatePerReplica="50", maxReplicas=3)
        changed["metadata"]["generation"] = 2
        v.kube.scalers["orders"] = changed
        await scaling(v)
        assert v.kube.replicas == 2
        assert v.kube.conditions["Ready"] == ("False", "ClusterError")
        v.reconciler.body = changed
        await v.visit()
        assert v.kube.replicas == 3
        assert v.kube.conditions["Ready"] == ("True", "Reconciled")


async def test_an_api_server_that_is_away_for_five_minutes_changes_nothing() -> None:
    async with visits(seedRatePerReplica="50") as v:
        await v.visit()
        url, v.link.url = v.link.url, "http://127.0.0.1:9"
        v.outbox.has_backlog()
        for _ in range(20):
            await v.visit()
        assert v.kube.replicas == 2
        v.link.url = url
        await v.visit()
        assert v.kube.replicas > 2
        assert v.kube.said == ["ScaledUp"]


async def test_a_write_that_was_done_though_its_answer_is_an_error_is_not_somebody_elses() -> None:
    async with visits(seedRatePerReplica="50") as v:

        def done(_: object) -> None:
            v.kube.replicas, v.kube.version = 7, 2
            raise kmock.KubernetesError(status=504)

        v.kube.mock[f"patch {SCALE}"][:1] << done
        await scaling(v)
        await v.visit()
        assert v.kube.replicas == 7
        assert "ExternalScale" not in v.kube.said


async def test_somebody_who_scales_at_the_same_moment_is_not_overwritten() -> None:
    async with visits(seedRatePerReplica="50") as v:

        def beaten(_: object) -> None:
            v.kube.replicas, v.kube.version = 4, 8
            raise kmock.KubernetesError(status=409)

        v.outbox.has_backlog()
        v.kube.mock[f"patch {SCALE}"][:1] << beaten
        await v.visit()
        assert v.kube.replicas == 4
        await v.visit()
        assert v.kube.said[0] == "ExternalScale"
