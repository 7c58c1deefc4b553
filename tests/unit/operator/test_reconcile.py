"""What a visit does to the target, while all goes well."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.kube import EVENTS, SCALE, STATUS, scaler
from tests.support.visiting import Visits, counts, visits


async def test_a_backlog_brings_replicas_and_an_event_that_tells_why() -> None:
    async with visits(seedRatePerReplica="50") as v:
        v.outbox.has_backlog()
        await v.visit()
        assert v.kube.replicas == 7
        assert v.kube.status["desiredReplicas"] == v.kube.status["currentReplicas"] == 7
        assert v.kube.conditions["Ready"] == ("True", "Reconciled")
        assert v.kube.conditions["ScalingActive"] == ("True", "Active")
        (event,) = v.kube.events
        assert (event["reason"], event["type"]) == ("ScaledUp", "Normal")
        assert "from 2 to 7 replicas" in event["message"]
        assert v.reconciler.actions == {"up": 1, "down": 0}


async def test_advice_changes_nothing_and_is_not_taken_for_somebody_elses_change() -> None:
    async with visits(seedRatePerReplica="50", mode="Recommend") as v:
        v.outbox.has_backlog()
        for _ in range(3):
            await v.visit()
        assert v.kube.replicas == 2
        assert v.kube.status["desiredReplicas"] == 7
        assert v.kube.conditions["ScalingActive"] == ("False", "RecommendMode")
        assert v.kube.said == []


async def test_advice_is_given_beside_what_scales_today_and_follows_it_without_a_word() -> None:
    async with visits(seedRatePerReplica="50", mode="Recommend") as v:
        target = {"kind": "Deployment", "name": "workers"}
        v.kube.autoscalers = [{"metadata": {"name": "hpa"}, "spec": {"scaleTargetRef": target}}]
        v.outbox.has_backlog()
        await v.visit()
        v.kube.replicas = 4
        await v.visit()
        assert v.kube.conditions["Ready"] == ("True", "Reconciled")
        assert v.kube.status["desiredReplicas"] == 7
        assert v.kube.said == []


async def test_advice_to_take_replicas_away_stays_the_same_while_nobody_takes_it() -> None:
    async with visits(seedRatePerReplica="50", mode="Recommend", maxReplicas=50) as v:
        v.kube.replicas = 40
        advice = []
        for _ in range(20):
            await v.visit()
            advice.append(v.kube.status["desiredReplicas"])
        assert advice[-5:] == [20] * 5


async def test_one_that_only_advises_is_in_no_other_scalers_way() -> None:
    async with visits(scaler("younger", uid="2", seedRatePerReplica="50")) as younger:
        younger.known = [scaler("older", uid="1", mode="Recommend")]
        younger.outbox.has_backlog()
        await younger.visit()
        assert younger.kube.replicas == 7


async def test_a_fallback_that_acts_is_told_as_one() -> None:
    fallback = {"behavior": "AtLeast", "replicas": 6, "afterSeconds": 60}
    async with visits(fallback=fallback) as v:
        await v.visit()
        v.outbox.misses = 3
        for _ in range(6):
            await v.visit()
        assert v.kube.replicas == 6
        assert v.kube.conditions["Ready"] == ("False", "MetricsUnavailable")
        assert v.kube.conditions["ScalingActive"] == ("True", "Active")


async def test_nothing_is_written_where_nothing_changes() -> None:
    async with visits() as v:
        for _ in range(4):
            await v.visit(after=1)
        assert len(v.kube.mock[f"patch {SCALE}"]) == 0
        assert len(v.kube.mock[f"patch {STATUS}"]) == 1
        await v.visit(after=60)
        assert len(v.kube.mock[f"patch {STATUS}"]) == 2


async def test_the_first_visit_says_something_about_every_condition() -> None:
    async with visits() as v:
        v.outbox.looks = 0
        await v.visit()
        assert v.kube.conditions["MetricsAvailable"] == ("Unknown", "Pending")
        assert set(v.kube.conditions) == {
            "Ready",
            "MetricsAvailable",
            "ScalingActive",
            "ScalingLimited",
            "Paused",
            "Permitted",
        }


async def test_replicas_that_somebody_else_set_are_where_it_goes_on_from() -> None:
    async with visits() as v:
        await v.visit()
        v.kube.replicas, v.kube.version = 5, 9
        await v.visit()
        assert v.kube.replicas == 5
        assert v.kube.said == ["ExternalScale"]
        await v.visit()
        assert v.kube.said == ["ExternalScale"]


async def test_a_restart_changes_no_replica_count() -> None:
    async with visits() as v:
        v.kube.replicas = 6
        await v.visit()
        v.restart()
        for _ in range(7):
            await v.visit()
        assert v.kube.replicas == 6
        assert v.kube.said == []


async def test_times_of_transitions_outlive_a_restart() -> None:
    async with visits() as v:
        await v.visit()
        for condition in v.kube.status["conditions"]:
            condition["lastTransitionTime"] = "2020-01-01T00:00:00Z"
        v.restart()
        await v.visit()
        times = {each["lastTransitionTime"] for each in v.kube.status["conditions"]}
        assert times == {"2020-01-01T00:00:00Z"}


@pytest.mark.parametrize("paused", ["All", "ScaleOut"])
async def test_a_pause_holds_the_replicas(paused: str) -> None:
    async with visits(seedRatePerReplica="50", paused=paused) as v:
        v.outbox.has_backlog()
        await v.visit()
        assert v.kube.replicas == 2
        assert v.kube.conditions["Paused"] == ("True", paused)


async def test_replicas_above_the_maximum_are_taken_back() -> None:
    async with visits() as v:
        v.kube.replicas = 30
        for _ in range(12):
            await v.visit()
        assert v.kube.replicas == 10


async def test_who_does_not_lead_asks_and_writes_nothing() -> None:
    async with visits(seedRatePerReplica="50") as v:
        v.outbox.has_backlog()
        v.gate.held = False
        await v.visit()
        assert len(v.kube.mock) == 0
        assert v.reconciler.last is None
        v.gate.held = True
        await v.visit()
        assert v.kube.replicas == 7


async def test_an_autoscaler_on_the_same_target_stops_it_and_is_told_once() -> None:
    async with visits(seedRatePerReplica="50") as v:
        v.outbox.has_backlog()
        target = {"kind": "Deployment", "name": "workers"}
        v.kube.autoscalers = [{"metadata": {"name": "hpa"}, "spec": {"scaleTargetRef": target}}]
        await v.visit()
        await v.visit()
        assert v.kube.replicas == 2
        assert v.kube.conditions["Ready"] == ("False", "TargetConflict")
        assert v.kube.said == ["TargetConflict"]
        v.kube.autoscalers = []
        await v.visit()
        assert v.kube.replicas == 7
        assert v.kube.conditions["Ready"] == ("True", "Reconciled")


async def test_of_two_scalers_of_one_target_the_older_goes_on() -> None:
    async with visits(scaler(uid="2", seedRatePerReplica="50")) as younger:
        younger.outbox.has_backlog()
        younger.known = [scaler("older", uid="1")]
        await younger.visit()
        assert younger.kube.conditions["Ready"] == ("False", "TargetConflict")
        assert younger.kube.replicas == 2
        younger.known = [scaler("youngest", uid="3")]
        await younger.visit()
        assert younger.kube.replicas == 7


async def test_an_outbox_that_is_away_is_told_after_three_looks_and_nothing_changes() -> None:
    async with visits(seedRatePerReplica="50") as v:
        await v.visit()
        for misses in (1, 2):
            v.outbox.misses = misses
            await v.visit()
        assert v.kube.conditions["MetricsAvailable"] == ("True", "Sampled")
        v.outbox.misses = 3
        await v.visit()
        assert v.kube.conditions["MetricsAvailable"] == ("False", "DatabaseUnreachable")
        assert v.kube.conditions["Ready"] == ("False", "MetricsUnavailable")
        assert (v.kube.replicas, v.kube.said) == (2, [])
        v.outbox.misses = 0
        await v.visit()
        assert v.kube.conditions["Ready"] == ("True", "Reconciled")


async def test_a_fallback_holds_when_nothing_is_known_for_long() -> None:
    fallback = {"behavior": "AtLeast", "replicas": 6, "afterSeconds": 100}
    async with visits(fallback=fallback) as v:
        await v.visit()
        v.outbox.misses = 9
        await v.visit(after=90)
        assert v.kube.replicas == 2
        await v.visit(after=30)
        assert v.kube.replicas == 6
        assert v.kube.status["decision"] == "Fallback"


async def test_only_the_named_destinations_count() -> None:
    async with visits(seedRatePerReplica="50", destinations=["audit"]) as v:
        v.outbox.has_backlog()
        v.outbox.destinations["audit"] = counts(ready=3, dead=2)
        await v.visit()
        assert v.kube.replicas == 2
        assert v.kube.status["observed"]["pendingMessages"] == 3
        assert v.kube.status["observed"]["deadMessages"] == 2


async def test_a_definition_that_drops_fields_is_told_once() -> None:
    async with visits() as v:
        old: dict[str, Any] = {"status": {"conditions": []}}
        v.kube.mock[f"patch {STATUS}"] << old
        await v.visit()
        await v.visit(after=61)
        assert v.kube.said == ["DefinitionOutdated"]
        assert "status.currentReplicas" in v.kube.events[0]["message"]


async def test_a_spec_of_a_newer_definition_is_not_guessed_at() -> None:
    body = scaler()
    body["spec"]["mode"] = "Dream"
    async with visits(body) as v:
        await v.visit()
        assert v.kube.conditions["Ready"] == ("False", "InvalidSpec")
        assert len(v.kube.mock[f"get {SCALE}"]) == 0


async def test_a_bug_with_one_object_is_told_and_survived(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(_: Visits) -> None:
        raise LookupError("unforeseen")

    async with visits() as v:
        monkeypatch.setattr(type(v.outbox), "look", property(broken))
        await v.visit()
        assert v.kube.conditions["Ready"] == ("False", "InternalError")
        assert len(v.kube.mock[f"post {EVENTS}"]) == 0
