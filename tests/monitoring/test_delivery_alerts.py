"""Late deliveries and growing backlogs are told, a little trouble is not."""

from __future__ import annotations

import pytest

from tests.support.promtool import fires, series, tells

pytestmark = pytest.mark.broker

PLACE = {"namespace": "shop", "destination": "mail"}
PAGE = [{"severity": "page", **PLACE}]
TICKET = {"severity": "ticket", **PLACE}
OLD = {"instance": "old:9187", **PLACE}
NEW = {"instance": "new:9187", **PLACE}

AGE = "OutboxOldestPendingAge"


def age(exporter: dict[str, str]) -> str:
    return series("outbox_oldest_pending_age_seconds", **exporter)


def test_a_message_that_is_late_wakes_somebody_after_a_minute() -> None:
    fires(AGE, {age(OLD): "0+60x20"}, {"5m": [], "6m": [], "7m": PAGE, "20m": PAGE})


def test_an_alarm_about_late_messages_ends_with_their_delivery() -> None:
    fires(AGE, {age(OLD): "0+60x20 0x10"}, {"20m": PAGE, "21m": [], "30m": []})


def test_an_age_at_the_limit_wakes_nobody() -> None:
    fires(AGE, {age(OLD): "300x20"}, {"10m": [], "20m": []})


def test_an_empty_outbox_is_not_late() -> None:
    fires(AGE, {age(OLD): "0x20"}, {"10m": [], "20m": []})
    fires(AGE, {series("outbox_collector_up", namespace="shop"): "1x20"}, {"10m": [], "20m": []})


def test_an_alarm_about_late_messages_goes_on_while_exporters_hand_over() -> None:
    fires(
        AGE,
        {age(OLD): "0+60x20 stale", age(NEW): "_x19 1140+60x20"},
        {f"{minute}m": PAGE for minute in range(7, 39)},
    )


def test_a_late_message_is_told_with_its_age_and_its_place() -> None:
    tells(
        AGE,
        {series("outbox_oldest_pending_age_seconds", **OLD, database="orders"): "3720x5"},
        "2m",
        {"severity": "page", **PLACE, "database": "orders"},
        {
            "summary": "Messages for mail are not delivered",
            "description": (
                "The oldest undelivered message for mail in namespace shop of database orders has"
                " been owed for 1h 2m 0s; the limit is 300 seconds. Delivery has stopped, or does"
                " not keep up."
            ),
            "runbook_url": "docs/runbooks/OutboxOldestPendingAge.md",
        },
    )


def test_places_without_a_namespace_are_told_without() -> None:
    tells(
        AGE,
        {series("outbox_oldest_pending_age_seconds", destination="mail"): "360x5"},
        "2m",
        {"severity": "page", "destination": "mail"},
        {
            "summary": "Messages for mail are not delivered",
            "description": (
                "The oldest undelivered message for mail has been owed for 6m 0s; the limit is 300"
                " seconds. Delivery has stopped, or does not keep up."
            ),
            "runbook_url": "docs/runbooks/OutboxOldestPendingAge.md",
        },
    )


FAST = "OutboxDeliverySLOFastBurn"
SLOW = "OutboxDeliverySLOSlowBurn"


def deliveries(pod: str, total: str, in_time: str) -> dict[str, str]:
    name = "outbox_delivery_latency_seconds"
    told = {"instance": pod, **PLACE}
    return {
        series(f"{name}_count", **told): total,
        series(f"{name}_bucket", **told, le="30.0"): in_time,
        series(f"{name}_bucket", **told, le="10.0"): "0x6000",
        series(f"{name}_bucket", **told, le="+Inf"): total,
    }


def test_a_fiftieth_of_the_deliveries_late_for_an_hour_wakes_somebody() -> None:
    fires(
        FAST,
        deliveries("a", "0+100x150", "0+100x60 6098+98x90"),
        {"60m": [], "80m": [], "110m": PAGE},
    )


def test_what_was_late_but_is_in_time_again_wakes_nobody() -> None:
    given = deliveries("a", "0+100x100", "0+100x30 3090+90x30 5800+100x40")
    fires(FAST, given, {"59m": PAGE, "68m": [], "90m": []})


def test_a_hundredth_of_the_deliveries_late_is_no_fast_burn_but_a_slow_one() -> None:
    given = deliveries("a", "0+100x500", "0+99x500")
    fires(FAST, given, {"120m": [], "450m": []})
    fires(SLOW, given, {"450m": [*PAGE, TICKET]})


def test_one_late_delivery_in_little_traffic_wakes_nobody() -> None:
    given = deliveries("a", "0x59 1x59 2x400", "0x59 0x59 0x400")
    fires(FAST, given, {f"{minute}m": [] for minute in range(60, 200, 5)})
    fires(SLOW, given, {f"{minute}m": [] for minute in range(60, 500, 20)})


def test_few_late_deliveries_for_days_make_a_ticket_and_wake_nobody() -> None:
    given = deliveries("a", "0+1000x4500", "0+998x4500")
    fires(SLOW, given, {"4400m": [TICKET]})


def test_deliveries_in_time_tell_nothing() -> None:
    given = deliveries("a", "0+100x500", "0+100x500")
    fires(FAST, given, {"2m": [], "120m": []})
    fires(SLOW, given, {"2m": [], "450m": []})


def test_no_deliveries_at_all_are_no_late_ones() -> None:
    given = deliveries("a", "0x120", "0x120")
    fires(FAST, given, {"60m": [], "120m": []})


def test_workers_that_leave_take_their_late_deliveries_along_only_after_a_while() -> None:
    given = {
        **deliveries("a", "0+100x70 stale", "0+90x70 stale"),
        **deliveries("b", "0+100x90", "0+100x90"),
    }
    fires(FAST, given, {"70m": PAGE, "72m": PAGE, "80m": []})


def test_a_restart_of_a_worker_is_no_late_delivery() -> None:
    given = deliveries("a", "0+100x60 0+100x60", "0+100x60 0+100x60")
    fires(FAST, given, {f"{minute}m": [] for minute in range(55, 80)})


GROWING = "OutboxBacklogGrowing"
TOLD = [{"severity": "warn", **PLACE}]


def pending(state: str, exporter: dict[str, str] = OLD) -> str:
    return series("outbox_pending_messages", **exporter, state=state)


def test_a_backlog_that_will_be_too_large_in_hours_is_told() -> None:
    fires(GROWING, {pending("ready"): "0+50x120"}, {"30m": [], "70m": TOLD, "120m": TOLD})


def test_a_backlog_that_is_as_large_as_can_be_counted_is_told_although_it_stands_still() -> None:
    fires(GROWING, {pending("ready"): "10000x90"}, {"29m": [], "31m": TOLD, "90m": TOLD})


def test_a_backlog_that_becomes_smaller_is_not_told() -> None:
    fires(GROWING, {pending("ready"): "9000-50x120"}, {"40m": [], "90m": []})


def test_a_burst_that_is_soon_delivered_is_not_told() -> None:
    fires(
        GROWING,
        {pending("ready"): "0x60 9000-900x10 0x120"},
        {f"{minute}m": [] for minute in range(60, 190, 5)},
    )


def test_what_is_scheduled_for_later_is_no_backlog() -> None:
    fires(
        GROWING,
        {pending("scheduled"): "0+90x120", pending("ready"): "5x120"},
        {"60m": [], "110m": []},
    )


def test_two_exporters_do_not_double_a_backlog() -> None:
    fires(
        GROWING,
        {pending("ready", OLD): "6000x120", pending("ready", NEW): "_x60 6000x60"},
        {"100m": [], "120m": []},
    )
