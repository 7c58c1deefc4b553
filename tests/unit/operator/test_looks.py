"""From what the cluster and the database tell to what the law looks at."""

from __future__ import annotations

from typing import Any

import pytest

from pgoutbox.database.statistics import Statistics, WorkerStatistics
from pgoutbox_operator import conflicts, samples, target
from pgoutbox_operator.cluster import Scale
from pgoutbox_operator.connections import place_of
from pgoutbox_operator.crd import ScalerSpec
from pgoutbox_operator.permissions import Permissions, access_of
from pgoutbox_operator.scaling import Budget, Fallback, Outbox, Policy
from pgoutbox_operator.target import Target
from pgoutbox_operator.wishes import policy_of
from tests.support.kube import scaler
from tests.support.scaler_cases import spec
from tests.support.visiting import counts, worker

OPEN = {"breaker": "open", "stopped": False}
HALF = {"breaker": "half_open", "stopped": False}
CLOSED = {"breaker": "closed", "stopped": False}
STOPPED = {"breaker": "closed", "stopped": True}
LONG_AGO = "1970-01-01T00:00:00+00:00"


def statistics(*workers: WorkerStatistics, **destinations: Any) -> Statistics:
    return Statistics(at=1000.0, cap=10_000, destinations=destinations, workers=workers)


def outbox_of(found: Statistics, destinations: tuple[str, ...] = ()) -> Outbox:
    return samples.outbox_of(found, destinations, fresh=45.0)


@pytest.mark.parametrize(
    ("said", "out"),
    [
        ([], False),
        ([CLOSED], False),
        ([OPEN], True),
        ([HALF], True),
        ([STOPPED], True),
        ([OPEN, CLOSED], False),
        ([OPEN, HALF, STOPPED], True),
    ],
)
def test_a_destination_is_out_when_every_live_worker_says_so(
    said: list[dict[str, Any]], *, out: bool
) -> None:
    workers = [worker(str(index), destinations={"a": each}) for index, each in enumerate(said)]
    dead = worker("dead", destinations={"a": CLOSED}, seen_age=60.0)
    elsewhere = worker("elsewhere", destinations={"b": CLOSED})
    found = statistics(*workers, dead, elsewhere, a=counts(ready=5))
    assert outbox_of(found).ready == (0 if out else 5)


def test_a_worker_that_has_just_started_does_not_know_yet_what_is_out() -> None:
    young = worker("young", destinations={"a": CLOSED}, started_at="1970-01-01T00:16:10+00:00")
    found = statistics(
        worker(destinations={"a": OPEN}, started_at=LONG_AGO), young, a=counts(ready=5)
    )
    assert outbox_of(found).ready == 0


def test_a_worker_that_drains_has_no_say_in_what_is_out() -> None:
    draining = worker("draining", destinations={"a": CLOSED}, state="draining")
    found = statistics(worker(destinations={"a": OPEN}), draining, a=counts(ready=5))
    assert outbox_of(found).ready == 0


def test_what_waits_behind_an_open_breaker_is_owed_and_not_ready() -> None:
    found = statistics(
        worker(destinations={"a": OPEN, "b": CLOSED}),
        a=counts(ready=100, oldest_ready_age=50.0),
        b=counts(ready=7, scheduled=2, processing=3, oldest_ready_age=4.0),
    )
    outbox = outbox_of(found)
    assert (outbox.ready, outbox.oldest_ready_age) == (7, 4.0)
    assert (outbox.undelivered, outbox.scheduled) == (112, 2)
    (seen,) = outbox.workers
    assert (sorted(seen.serves), sorted(seen.opened)) == (["a", "b"], ["a"])


def test_an_empty_outbox_is_one_with_nothing_in_it() -> None:
    outbox = outbox_of(statistics())
    assert (outbox.ready, outbox.oldest_ready_age, outbox.undelivered) == (0, 0.0, 0)


def test_a_count_at_its_cap_is_at_least_that() -> None:
    assert outbox_of(statistics(a=counts(ready=10_000))).capped
    assert not outbox_of(statistics(a=counts(ready=9_999, dead=10_000))).capped


def test_only_the_named_destinations_and_their_workers_count() -> None:
    found = statistics(
        worker("a", destinations={"a": CLOSED}),
        worker("b", destinations={"b": CLOSED}),
        worker("any", destinations={}),
        a=counts(ready=1, dead=4),
        b=counts(ready=2, dead=8),
    )
    outbox = outbox_of(found, ("b",))
    assert outbox.ready == 2
    assert [each.incarnation for each in outbox.workers] == ["b", "any"]
    assert (samples.dead(found, ("b",)), samples.dead(found, ())) == (8, 12)


def test_a_worker_is_known_by_its_counters() -> None:
    counters = {"published": 5, "buried": 1, "returned": 2}
    started = "1970-01-01T00:10:00+00:00"
    (old,) = outbox_of(statistics(worker(counters=counters, started_at=started))).workers
    assert (old.finished, old.attempts, old.failed, old.busy_seconds) == (6, 0, 0, 0.0)
    assert old.uptime == 1000 - 1 - 600
    more = counters | {"attempts": 9, "failed": 1, "busy_seconds": 2.5}
    (new,) = outbox_of(statistics(worker(counters=more, state="draining"))).workers
    assert (new.attempts, new.failed, new.busy_seconds, new.running) == (9, 1, 2.5, False)


def test_a_worker_has_as_many_slots_as_the_narrowest_destination_that_counts() -> None:
    wide, narrow = CLOSED | {"slots": 50}, CLOSED | {"slots": 4}
    found = statistics(worker(slots=200, destinations={"a": wide, "b": narrow}))
    assert outbox_of(found).workers[0].slots == 4
    assert outbox_of(found, ("a",)).workers[0].slots == 50
    assert outbox_of(statistics(worker(slots=200))).workers[0].slots == 200


@pytest.mark.parametrize(
    ("given", "lanes"),
    [
        ({"ready": 90, "ready_lanes": 3, "processing": 20, "processing_lanes": 2}, 5),
        ({"ready": 90, "ready_lanes": 3, "ready_unordered": 1}, None),
        ({"ready": 90, "ready_lanes": 3, "processing_unordered": 1}, None),
        ({"ready": 90, "ready_lanes": 3, "ready_unordered": None}, None),
        (
            {"ready": 10_000, "ready_lanes": 9_999, "processing": 9_999, "processing_lanes": 1},
            10_000,
        ),
        ({"ready": 10_000, "ready_lanes": 10_000}, None),
        ({"ready": 90, "ready_lanes": 3, "processing": 10_000, "processing_lanes": 2}, None),
        ({}, None),
    ],
)
def test_lanes_are_known_where_all_that_is_ready_or_under_way_is_in_one_and_was_counted(
    given: dict[str, Any], lanes: int | None
) -> None:
    assert outbox_of(statistics(a=counts(**given), b=counts(scheduled=1))).lanes == lanes


def test_the_next_one_that_is_due_may_be_of_any_destination_that_counts() -> None:
    found = statistics(
        a=counts(scheduled=1, next_due_in=30.0),
        b=counts(next_due_in=None),
        c=counts(next_due_in=7.0),
    )
    assert outbox_of(found).next_due_in == 7.0
    assert outbox_of(found, ("a", "b")).next_due_in == 30.0
    assert outbox_of(found, ("b",)).next_due_in is None


def pod(name: str, *, created: str = "2026-01-01T00:00:00Z", **of: Any) -> dict[str, Any]:
    metadata = {"name": name, "creationTimestamp": created}
    if of.pop("leaving", False):
        metadata["deletionTimestamp"] = created
    ready = "True" if of.pop("ready", True) else "False"
    return {
        "metadata": metadata,
        "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": ready}], **of},
    }


def test_pods_tell_who_is_ready_and_who_goes() -> None:
    pods = (
        pod("a"),
        pod("b", ready=False),
        pod("c", leaving=True),
        pod("d", leaving=True, phase="Succeeded"),
        {"metadata": {"name": "e", "creationTimestamp": "2026-01-01T00:00:00Z"}},
    )
    seen = Target(scale=Scale(3, "app=a", "1"), pods=pods)
    assert (seen.ready, seen.terminating, seen.fleet(()).replicas) == (1, 1, 3)


def test_startup_is_what_nine_of_ten_pods_need() -> None:
    pods = [pod(str(number)) for number in range(10)]
    workers = [
        worker(str(number), owner=str(number), started_at=f"2026-01-01T00:00:{number + 10}+00:00")
        for number in range(10)
    ]
    assert target.startup(pods, workers) == 18.0
    assert target.startup(pods, []) is None
    restarted = [pod("1", containerStatuses=[{"restartCount": 1}])]
    assert target.startup(restarted, workers) is None
    late = [pod("1", created="2025-12-31T00:00:00Z")]
    assert target.startup(late, workers) is None


def test_a_plain_spec_gives_the_laws_own_defaults() -> None:
    assert policy_of(ScalerSpec.model_validate(spec())) == Policy(max_replicas=10)


SAID = spec(
    minReplicas=0,
    objective={"maxAgeSeconds": 60},
    utilization={"targetPercent": 80, "hysteresisPercent": 10},
    scaleUp={"maxPercent": 50, "maxPods": 2, "periodSeconds": 30},
    scaleDown={
        "stabilizationWindowSeconds": 10,
        "maxPercent": 25,
        "periodSeconds": 20,
    },
    seedRatePerReplica="12.5",
    expectedStartupSeconds=45,
    activationReplicas=3,
    idleSeconds=99,
    paused="ScaleIn",
    backpressure={"mode": "Hold", "failureRatioPercent": 2},
    fallback={"behavior": "Static", "replicas": 4, "afterSeconds": 77},
    connectionBudget={"total": 50, "reserved": 5, "perReplica": 2, "surge": 1},
)


def test_a_spec_is_told_to_the_law_in_seconds_and_shares() -> None:
    policy = policy_of(ScalerSpec.model_validate(SAID))
    assert policy == Policy(
        max_replicas=10,
        min_replicas=0,
        objective=60.0,
        utilization=0.8,
        hysteresis=0.1,
        up_factor=1.5,
        up_pods=2,
        tick=30.0,
        window=10.0,
        down_share=0.25,
        down_period=20.0,
        seed_rate=12.5,
        startup=45.0,
        activation=3,
        idle=99.0,
        paused="ScaleIn",
        backpressure="Hold",
        failing=0.02,
        recovered=0.01,
        stale=90.0,
        fallback=Fallback(behavior="Static", replicas=4, after=77.0),
        budget=Budget(total=50, reserved=5, per_replica=2, surge=1),
    )


def test_objects_that_name_one_outbox_share_it() -> None:
    first = ScalerSpec.model_validate(spec())
    second = ScalerSpec.model_validate(spec(destinations=["a"]))
    assert place_of("shop", first) == place_of("shop", second)
    assert place_of("shop", first) != place_of("store", first)
    file = ScalerSpec.model_validate(spec(database={"connectionName": "orders"}))
    assert place_of("shop", file) == place_of("store", file)
    assert (str(place_of("shop", first)), str(place_of("shop", file))) == (
        "shop/outbox-dsn",
        "orders",
    )


@pytest.mark.parametrize(
    ("target", "told"),
    [
        ({"kind": "Deployment", "name": "workers"}, True),
        ({"kind": "Deployment", "name": "web"}, False),
        ({"kind": "StatefulSet", "name": "workers"}, False),
        (None, False),
    ],
)
def test_an_autoscaler_conflicts_when_it_has_the_same_target(
    target: dict[str, str] | None, *, told: bool
) -> None:
    found = [{"metadata": {"name": "hpa"}, "spec": {"scaleTargetRef": target}}]
    assert (conflicts.of_autoscalers(found, "workers") is not None) is told


def test_an_older_scaler_conflicts_and_a_younger_one_does_not() -> None:
    ours = scaler("b", uid="2")
    assert conflicts.of_scalers(ours, [scaler("a", uid="3")]) is None
    assert conflicts.of_scalers(ours, [scaler("a", uid="1")]) is not None
    elsewhere = scaler("a", uid="1", scaleTargetRef={"name": "web"})
    assert conflicts.of_scalers(ours, [elsewhere]) is None
    # Of two that were made in the same second, the first by name.
    assert conflicts.of_scalers(ours, [scaler("a", uid="2")]) is not None


GROUP = "/apis/pgoutbox.io/v1alpha1"


@pytest.mark.parametrize(
    ("method", "path", "query", "told"),
    [
        ("GET", f"{GROUP}/outboxscalers", {}, "list outboxscalers"),
        ("GET", f"{GROUP}/namespaces/a/outboxscalers", {"watch": "true"}, "watch outboxscalers"),
        ("PATCH", f"{GROUP}/namespaces/a/outboxscalers/b/status", {}, "patch outboxscalers/status"),
        ("GET", "/apis/apps/v1/namespaces/a/deployments/b/scale", {}, "get deployments/scale"),
        ("GET", "/api/v1/namespaces/a/pods", {"labelSelector": "x"}, "list pods"),
        ("GET", "/api/v1/namespaces/a/secrets/b", {}, "get secrets"),
        ("POST", "/api/v1/namespaces/a/events", {}, "create events"),
        ("PUT", "/apis/coordination.k8s.io/v1/namespaces/a/leases/b", {}, "update leases"),
    ],
)
def test_a_request_is_told_in_the_words_of_a_role(
    method: str, path: str, query: dict[str, str], told: str
) -> None:
    access = access_of(method, path, query)
    assert str(access) == told
    assert access.namespace == ("a" if "/namespaces/" in path else None)


def test_a_refusal_is_remembered_until_it_is_allowed_and_counted_each_time() -> None:
    permissions = Permissions()
    access = access_of("GET", "/api/v1/namespaces/a/pods", {})
    for _ in range(3):
        permissions.told(access, allowed=False)
    assert permissions.missing("a") == [access]
    assert permissions.missing("b") == []
    assert permissions.errors["list", "pods"] == 3
    permissions.told(access, allowed=True)
    assert permissions.missing("a") == []
    assert permissions.errors["list", "pods"] == 3


def test_a_right_to_one_object_is_no_right_to_another() -> None:
    permissions = Permissions()
    base = "/apis/apps/v1/namespaces/shop/deployments"
    refused = access_of("GET", f"{base}/b/scale", {})
    permissions.told(refused, allowed=False)
    permissions.told(access_of("GET", f"{base}/a/scale", {}), allowed=True)
    assert permissions.missing("shop") == [refused]
    assert str(refused) == "get deployments/scale"


@pytest.mark.parametrize(
    "odd",
    [
        {"counters": {"published": None}},
        {"counters": {"attempts": "many"}},
        {"counters": {"busy_seconds": "Infinity"}},
        {"destinations": {"a": {"slots": "x"}}},
        {"destinations": {"a": None}},
        {"started_at": "infinity"},
    ],
)
def test_a_heartbeat_that_makes_no_sense_is_one_less_and_not_the_end(odd: dict[str, Any]) -> None:
    found = statistics(worker("odd", **odd), worker("even"), a=counts(ready=5))
    assert [each.incarnation for each in outbox_of(found).workers] == ["even"]
