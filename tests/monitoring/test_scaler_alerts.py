"""A scaler that is at an end or not looked after is told."""

from __future__ import annotations

import pytest

from tests.support.promtool import fires, series

pytestmark = pytest.mark.broker

SCALER = {"namespace": "shop", "name": "outbox"}
TOLD = [{"severity": "warn", **SCALER}]
AT_MAX = "OutboxScalerAtMax"


def scaler(name: str, pod: str = "a", /, **labels: str) -> str:
    return series(f"outbox_scaler_{name}", **SCALER, instance=pod, **labels)


AGE = scaler("oldest_ready_age_seconds")
LATE = {AGE: "45x40"}
FULL = {scaler("desired_replicas"): "10x40", scaler("max_replicas"): "10x40"}


def test_a_scaler_at_its_maximum_with_late_messages_is_told() -> None:
    fires(AT_MAX, {**FULL, AGE: "0x9 45x30"}, {"24m": [], "26m": TOLD})


def test_a_scaler_at_its_maximum_that_keeps_up_is_not_told() -> None:
    fires(AT_MAX, {**FULL, AGE: "12x40"}, {"20m": [], "40m": []})


def test_a_scaler_below_its_maximum_is_not_told() -> None:
    fires(AT_MAX, FULL | LATE | {scaler("desired_replicas"): "9x40"}, {"20m": [], "40m": []})


def test_late_messages_of_another_scaler_are_no_reason() -> None:
    others = series("outbox_scaler_oldest_ready_age_seconds", **(SCALER | {"name": "mails"}))
    table = series("outbox_oldest_ready_age_seconds", namespace="shop", destination="mails")
    fires(AT_MAX, {**FULL, AGE: "0x40", others: "45x40", table: "45x40"}, {"20m": [], "40m": []})


@pytest.mark.parametrize(
    ("reason", "told"),
    [("ConnectionBudget", TOLD), ("OrderingKeys", []), ("RateLimit", [])],
)
def test_a_scaler_that_has_used_up_its_connections_is_at_its_maximum(
    reason: str, told: list[dict[str, str]]
) -> None:
    below = {scaler("desired_replicas"): "9x40", scaler("limited", reason=reason): "1x40"}
    fires(AT_MAX, FULL | LATE | below, {"14m": [], "16m": told, "40m": told})


def test_a_scaler_at_its_maximum_stays_told_while_operators_hand_over() -> None:
    given = {
        scaler(name, pod): f"{value}x30 stale" if pod == "a" else f"_x29 {value}x20"
        for name, value in (
            ("desired_replicas", 10),
            ("max_replicas", 10),
            ("oldest_ready_age_seconds", 45),
        )
        for pod in ("a", "b")
    }
    fires(AT_MAX, given, {"20m": TOLD, "30m": TOLD, "32m": TOLD, "45m": TOLD})


def limited(reason: str) -> str:
    return scaler("limited", reason=reason)


@pytest.mark.parametrize("reason", ["DownstreamLimited", "DatabaseBound"])
def test_a_scaler_that_something_behind_the_workers_limits_is_told_after_half_an_hour(
    reason: str,
) -> None:
    fires(
        "OutboxScalerLimited",
        {limited(reason): "1x40", limited("MaxReplicas"): "1x40"},
        {"29m": [], "31m": [{**TOLD[0], "reason": reason}]},
    )


def test_a_scaler_that_is_limited_for_a_while_is_not_told() -> None:
    given = {limited("DownstreamLimited"): "0x9 1x20 0x20", limited("MaxReplicas"): "1x50"}
    fires("OutboxScalerLimited", given, {"29m": [], "40m": []})


NOT_READY = "OutboxScalerNotReady"


def condition(status: str, kind: str = "Ready") -> str:
    return scaler("condition", type=kind, status=status)


@pytest.mark.parametrize("status", ["False", "Unknown"])
def test_a_scaler_that_is_not_ready_is_told_after_ten_minutes(status: str) -> None:
    given = {condition("True"): "1x9 0x30", condition(status): "0x9 1x30"}
    fires(NOT_READY, given, {"19m": [], "21m": TOLD})


def test_a_scaler_that_is_ready_again_in_time_is_not_told() -> None:
    given = {condition("True"): "1x9 0x8 1x30", condition("False"): "0x9 1x8 0x30"}
    fires(NOT_READY, given, {f"{minute}m": [] for minute in range(40)})


def test_a_scaler_that_only_gives_advice_or_is_paused_is_ready() -> None:
    given = {
        condition("True"): "1x40",
        condition("False"): "0x40",
        condition("Unknown"): "0x40",
        condition("False", "ScalingActive"): "1x40",
        condition("True", "Paused"): "1x40",
    }
    fires(NOT_READY, given, {"20m": [], "40m": []})


FORBIDDEN = "OutboxOperatorForbidden"


def refusals(resource: str = "deployments/scale", pod: str = "a") -> str:
    return series(
        "outbox_operator_permission_errors_total",
        namespace="pgoutbox",
        instance=pod,
        verb="patch",
        resource=resource,
    )


MAY_NOT = [
    {
        "severity": "warn",
        "namespace": "pgoutbox",
        "verb": "patch",
        "resource": "deployments/scale",
    }
]


def test_a_right_that_is_missing_is_told_at_once_and_until_it_is_given() -> None:
    given = {refusals(): "0x9 1+4x10 41x30", refusals("outboxscalers/status"): "0x50"}
    fires(FORBIDDEN, given, {"9m": [], "11m": MAY_NOT, "30m": MAY_NOT, "40m": []})


def test_an_operator_that_was_never_refused_anything_is_not_told() -> None:
    fires(FORBIDDEN, {refusals(): "0x40"}, {"5m": [], "40m": []})


def test_an_operator_that_begins_anew_where_another_one_was_refused_is_not_told() -> None:
    given = {refusals(pod="a"): "41x9 stale", refusals(pod="b"): "_x10 0x40"}
    fires(FORBIDDEN, given, {"5m": [], "12m": [], "40m": []})


STALE = "OutboxScalerStale"
LOOKED = "last_reconcile_timestamp_seconds"


def test_a_scaler_that_nobody_looks_after_is_told() -> None:
    fires(STALE, {scaler(LOOKED): "0+60x9 600x30"}, {"9m": [], "15m": [], "17m": TOLD})


def test_an_operator_that_is_gone_is_told() -> None:
    fires(STALE, {scaler(LOOKED): "0+60x9 stale"}, {"14m": [], "17m": TOLD, "60m": TOLD})


def test_an_operator_that_hands_over_is_not_told() -> None:
    fires(
        STALE,
        {scaler(LOOKED, "a"): "0+60x20 stale", scaler(LOOKED, "b"): "_x22 1320+60x30"},
        {f"{minute}m": [] for minute in range(52)},
    )


def test_without_an_operator_nothing_is_told_of_it() -> None:
    given = {series("outbox_oldest_ready_age_seconds", namespace="shop"): "45x60"}
    for alert in (AT_MAX, "OutboxScalerLimited", NOT_READY, FORBIDDEN, STALE):
        fires(alert, given, {"40m": [], "60m": []})
