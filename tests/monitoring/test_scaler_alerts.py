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


AGE = series("outbox_oldest_ready_age_seconds", namespace="shop", instance="a", destination="mail")


def test_a_scaler_at_its_maximum_with_late_messages_is_told() -> None:
    fires(
        AT_MAX,
        {scaler("desired_replicas"): "10x40", scaler("max_replicas"): "10x40", AGE: "0x9 45x30"},
        {"24m": [], "26m": TOLD},
    )


def test_a_scaler_at_its_maximum_that_keeps_up_is_not_told() -> None:
    fires(
        AT_MAX,
        {scaler("desired_replicas"): "10x40", scaler("max_replicas"): "10x40", AGE: "12x40"},
        {"20m": [], "40m": []},
    )


def test_a_scaler_below_its_maximum_is_not_told() -> None:
    fires(
        AT_MAX,
        {scaler("desired_replicas"): "9x40", scaler("max_replicas"): "10x40", AGE: "45x40"},
        {"20m": [], "40m": []},
    )


def test_a_scaler_at_its_maximum_stays_told_while_operators_hand_over() -> None:
    fires(
        AT_MAX,
        {
            scaler("desired_replicas", "a"): "10x30 stale",
            scaler("max_replicas", "a"): "10x30 stale",
            scaler("desired_replicas", "b"): "_x29 10x20",
            scaler("max_replicas", "b"): "_x29 10x20",
            AGE: "45x50",
        },
        {"20m": TOLD, "30m": TOLD, "32m": TOLD, "45m": TOLD},
    )


def limited(reason: str) -> str:
    return scaler("limited", reason=reason)


def test_a_scaler_that_the_destination_limits_is_told_after_half_an_hour() -> None:
    fires(
        "OutboxScalerLimited",
        {limited("DownstreamLimited"): "1x40", limited("AtMaximum"): "1x40"},
        {"29m": [], "31m": [{**TOLD[0], "reason": "DownstreamLimited"}]},
    )


def test_a_scaler_that_is_limited_for_a_while_is_not_told() -> None:
    given = {limited("DownstreamLimited"): "0x9 1x20 0x20", limited("AtMaximum"): "1x50"}
    fires("OutboxScalerLimited", given, {"29m": [], "40m": []})


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
    given = {AGE: "45x60"}
    for alert in (AT_MAX, "OutboxScalerLimited", STALE):
        fires(alert, given, {"40m": [], "60m": []})
