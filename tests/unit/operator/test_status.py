"""What is said about a visit, and how often."""

from __future__ import annotations

import pytest

from pgoutbox_operator import report
from pgoutbox_operator.cluster import Scale
from pgoutbox_operator.conditions import LIMITS, conditions
from pgoutbox_operator.crd import ConditionReason, ConditionType, ScalerSpec, ScalerStatus
from pgoutbox_operator.explain import REASONS
from pgoutbox_operator.permissions import Access
from pgoutbox_operator.scaling import Decision, Limit, Numbers, Outbox, Reason
from pgoutbox_operator.target import Target
from pgoutbox_operator.visit import Finding, Visit
from tests.support.scaler_cases import spec

NOW, LATER = "2026-01-01T00:00:00Z", "2026-01-01T00:01:00Z"
OUTBOX = Outbox(at=0.0, ready=1234, oldest_ready_age=17.6, undelivered=1234)


def visit(
    *,
    decision: Decision | None = None,
    outbox: Outbox | None = OUTBOX,
    blocked: Finding | None = None,
    blind: Finding | None = None,
    forbidden: tuple[Access, ...] = (),
    changes: dict[str, object] | None = None,
) -> Visit:
    return Visit(
        generation=3,
        spec=ScalerSpec.model_validate(spec(**changes or {})),
        target=Target(scale=Scale(2, "a=b", "1"), pods=()),
        outbox=outbox,
        decision=decision or Decision(replicas=2, previous=2, reason=Reason.STEADY),
        blocked=blocked,
        blind=blind,
        forbidden=forbidden,
    )


def said(found: Visit) -> dict[str, tuple[str, str]]:
    return {each.type: (each.status, each.reason) for each in conditions(found, (), NOW)}


BLOCKED = Finding(reason=ConditionReason.TARGET_CONFLICT, message="an HPA")
BLIND = Finding(reason=ConditionReason.SECRET_NOT_FOUND, message="no Secret")
DENIED = (Access("create", "events", "shop"),)


def limited(by: Limit) -> Decision:
    return Decision(replicas=2, previous=2, reason=Reason.BACKLOG, limited_by=by)


@pytest.mark.parametrize(
    ("found", "kind", "status", "reason"),
    [
        (visit(), "Ready", "True", "Reconciled"),
        (visit(blocked=BLOCKED), "Ready", "False", "TargetConflict"),
        (visit(blocked=BLOCKED), "ScalingActive", "False", "TargetConflict"),
        (visit(blind=BLIND), "Ready", "False", "MetricsUnavailable"),
        (visit(blind=BLIND), "MetricsAvailable", "False", "SecretNotFound"),
        (visit(blind=BLIND), "ScalingActive", "False", "MetricsUnavailable"),
        (visit(outbox=None), "MetricsAvailable", "Unknown", "Pending"),
        (visit(), "MetricsAvailable", "True", "Sampled"),
        (visit(), "ScalingActive", "True", "Active"),
        (visit(changes={"mode": "Recommend"}), "ScalingActive", "False", "RecommendMode"),
        (visit(changes={"paused": "All"}), "ScalingActive", "False", "All"),
        (visit(changes={"paused": "ScaleIn"}), "ScalingActive", "True", "Active"),
        (visit(changes={"paused": "ScaleIn"}), "Paused", "True", "ScaleIn"),
        (visit(), "Paused", "False", "NotPaused"),
        (visit(), "ScalingLimited", "False", "NotLimited"),
        *((visit(decision=limited(by)), "ScalingLimited", "True", by.value) for by in Limit),
        (visit(), "Permitted", "True", "Permitted"),
        (visit(forbidden=DENIED), "Permitted", "False", "Forbidden"),
    ],
)
def test_a_condition_says_what_was_found(found: Visit, kind: str, status: str, reason: str) -> None:
    assert said(found)[kind] == (status, reason)


def test_every_condition_is_there_from_the_first_visit_on() -> None:
    assert set(said(Visit(generation=1))) == set(ConditionType)


def test_a_transition_is_a_change_of_the_status_and_nothing_else() -> None:
    first = conditions(visit(blocked=BLOCKED), (), NOW)
    other = Finding(reason=ConditionReason.TARGET_NOT_FOUND, message="gone")
    same = conditions(visit(blocked=other), first, LATER)
    assert {each.last_transition_time for each in same} == {NOW}
    cured = {each.type: each for each in conditions(visit(), same, LATER)}
    assert cured["Ready"].last_transition_time == LATER
    assert cured["Paused"].last_transition_time == NOW


def test_a_missing_right_is_named() -> None:
    permitted = conditions(visit(forbidden=DENIED), (), NOW)[-1]
    assert "create events" in permitted.message


def test_numbers_have_two_digits() -> None:
    numbers = Numbers(ready=1234, arrivals=123.4, rate_per_replica=0.04567, failing=0.126)
    decision = Decision(replicas=2, previous=2, reason=Reason.STEADY, numbers=numbers)
    observed = report.status_of(visit(decision=decision), ScalerStatus(), NOW).observed
    assert observed is not None
    assert (observed.pending_messages, observed.oldest_pending_age_seconds) == (1200, 18)
    assert (observed.arrival_rate, observed.rate_per_replica) == ("120", "0.046")
    assert observed.failing_percent == 13


def test_a_number_alone_is_written_once_a_minute() -> None:
    before = report.status_of(visit(), ScalerStatus(), NOW)
    busier = Outbox(at=0.0, ready=9000, oldest_ready_age=1.0, undelivered=9000)
    after = report.status_of(visit(outbox=busier), before, LATER)
    assert before != after
    assert report.is_due(before, after, None)
    assert not report.is_due(before, after, 59.0)
    assert report.is_due(before, after, 60.0)
    assert not report.is_due(after, after, 59.0)


def test_even_what_has_not_changed_is_written_since_that_tells_whether_the_object_exists() -> None:
    same = report.status_of(visit(), ScalerStatus(), NOW)
    assert report.is_due(same, same, 60.0)


def test_a_condition_or_a_replica_count_is_written_at_once() -> None:
    before = report.status_of(visit(), ScalerStatus(), NOW)
    worse = report.status_of(visit(blind=BLIND), before, LATER)
    assert report.is_due(before, worse, 0.1)
    grown = Decision(replicas=3, previous=2, reason=Reason.BACKLOG)
    assert report.is_due(before, report.status_of(visit(decision=grown), before, LATER), 0.1)


def test_what_a_visit_could_not_find_out_stays() -> None:
    before = report.status_of(visit(), ScalerStatus(), NOW)
    after = report.status_of(Visit(generation=4, blocked=BLOCKED), before, LATER)
    assert (after.current_replicas, after.observed) == (2, before.observed)
    assert after.observed_generation == 4


def test_fields_that_were_dropped_are_found_and_nulls_are_not() -> None:
    sent = {"a": 1, "b": None, "c": {"d": 1, "e": 2}}
    assert report.pruned(sent, {"a": 1, "c": {"d": 1}}) == ["status.c.e"]
    assert report.pruned(sent, {"a": 1, "c": {"d": 1, "e": 2}}) == []


def test_a_patch_is_what_the_definition_takes() -> None:
    patch = report.as_patch(report.status_of(visit(), ScalerStatus(), NOW))
    assert patch["conditions"][0]["observedGeneration"] == 3
    assert patch["observed"]["limitedBy"] is None


def test_there_are_words_for_every_reason_and_every_limit() -> None:
    assert set(LIMITS) == set(Limit)
    assert set(REASONS) == set(Reason)
