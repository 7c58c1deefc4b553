"""Missing numbers and a held xmin horizon are told; an empty outbox is neither."""

from __future__ import annotations

import pytest

from tests.support.promtool import fires, series

pytestmark = pytest.mark.broker

SHOP = {"namespace": "shop"}
TOLD = [{"severity": "warn", **SHOP}]


def up(exporter: str = "a", **labels: str) -> str:
    return series("outbox_collector_up", **SHOP, instance=exporter, **labels)


ABSENT = "OutboxMetricsAbsent"


def test_an_outbox_that_nobody_ever_looked_at_is_told() -> None:
    fires(ABSENT, {"up": "1x30"}, {"9m": [], "11m": [{"severity": "warn"}]})


def test_an_exporter_that_vanished_is_told_with_its_place() -> None:
    other = series("outbox_collector_up", namespace="stock", instance="b")
    fires(ABSENT, {up(): "1x9 stale", other: "1x60"}, {"19m": [], "21m": TOLD, "60m": TOLD})


def test_the_last_exporter_that_vanished_is_told_once() -> None:
    fires(ABSENT, {up(): "1x9 stale", "up": "1x60"}, {"21m": TOLD, "60m": TOLD})


def test_an_empty_outbox_is_no_missing_metric() -> None:
    fires(ABSENT, {up(): "1x60"}, {"15m": [], "60m": []})


def test_an_exporter_that_cannot_look_is_not_absent() -> None:
    fires(ABSENT, {up(): "0x60"}, {"15m": [], "60m": []})


def test_an_exporter_that_restarts_or_hands_over_is_not_absent() -> None:
    fires(ABSENT, {up(): "1x20 stale _x3 1x30"}, {f"{minute}m": [] for minute in range(10, 50)})
    fires(
        ABSENT,
        {up("a"): "1x20 stale", up("b"): "_x19 0 1x40"},
        {f"{minute}m": [] for minute in range(10, 50)},
    )


DOWN = "OutboxCollectorDown"


def test_an_exporter_that_cannot_look_is_told_after_five_minutes() -> None:
    fires(DOWN, {up(): "1x9 0x20 1x9"}, {"14m": [], "16m": TOLD, "31m": []})


def test_a_short_outage_of_the_database_is_not_told() -> None:
    fires(DOWN, {up(): "1x9 0x3 1x20"}, {"12m": [], "16m": [], "30m": []})


def test_one_of_two_databases_that_cannot_be_asked_is_told() -> None:
    fires(
        DOWN,
        {up(database="orders"): "0x20", up(database="stock"): "1x20"},
        {"6m": [{**TOLD[0], "database": "orders"}]},
    )


def test_an_exporter_that_takes_over_and_has_not_looked_yet_is_not_down() -> None:
    fires(
        DOWN,
        {up("a"): "1x20 stale", up("b"): "_x19 0 1x40"},
        {f"{minute}m": [] for minute in range(15, 50)},
    )


HELD = "OutboxXminHorizonHeld"


def held(part: str) -> str:
    return series(f"outbox_xmin_age_{part}", **SHOP, instance="a")


def test_an_old_transaction_that_holds_back_much_is_told() -> None:
    fires(
        HELD,
        {held("seconds"): "0+60x20", held("transactions"): "0+100x20"},
        {"9m": [], "11m": TOLD},
    )


def test_an_old_transaction_that_holds_back_nothing_is_not_told() -> None:
    fires(HELD, {held("seconds"): "0+60x20", held("transactions"): "3x20"}, {"11m": [], "20m": []})


def test_a_standby_in_use_is_not_told() -> None:
    fires(HELD, {held("seconds"): "2x20", held("transactions"): "5000x20"}, {"11m": [], "20m": []})


def test_a_horizon_whose_age_nobody_knows_is_told_by_its_transactions() -> None:
    fires(HELD, {held("transactions"): "0+20000x20"}, {"9m": [], "11m": TOLD})
    fires(HELD, {held("transactions"): "99999x20"}, {"11m": [], "20m": []})
