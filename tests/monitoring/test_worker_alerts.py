"""Missing, dying and troubled workers are told, those that come and go are not."""

from __future__ import annotations

import pytest

from tests.support.promtool import fires, series

pytestmark = pytest.mark.broker

SHOP = {"namespace": "shop"}
MAIL = {"namespace": "shop", "destination": "mail"}
EXPORTER = {"namespace": "shop", "instance": "exporter:9187"}
OTHER_EXPORTER = {"namespace": "shop", "instance": "other:9187"}

MISSING = "OutboxWorkersMissing"
NOBODY = [{"severity": "page", **SHOP}]


def worker(name: str, pod: str = "a", **labels: str) -> str:
    return series(name, **SHOP, job="worker", instance=f"{pod}:8080", pod=pod, **labels)


def ready(exporter: dict[str, str] = EXPORTER, destination: str = "mail") -> str:
    return series("outbox_pending_messages", **exporter, destination=destination, state="ready")


def workers(state: str, exporter: dict[str, str] = EXPORTER) -> str:
    return series("outbox_workers", **exporter, state=state)


def test_messages_without_any_worker_wake_somebody_after_five_minutes() -> None:
    fires(
        MISSING,
        {ready(): "0x9 4x30", workers("running"): "0x40", workers("silent"): "2x40"},
        {"14m": [], "16m": NOBODY, "40m": NOBODY},
    )


def test_a_worker_that_is_only_draining_does_not_count() -> None:
    fires(
        MISSING,
        {ready(): "4x30", workers("running"): "0x30", workers("draining"): "1x30"},
        {"6m": NOBODY},
    )


def test_no_worker_is_missed_where_nothing_waits() -> None:
    fires(MISSING, {ready(): "0x30", workers("running"): "0x30"}, {"10m": [], "30m": []})
    fires(MISSING, {workers("running"): "0x30"}, {"10m": [], "30m": []})


def test_workers_that_start_in_time_are_not_missed() -> None:
    fires(
        MISSING,
        {ready(): "0x9 9x30", workers("running"): "0x12 1x30"},
        {"11m": [], "15m": [], "20m": []},
    )


def test_missing_workers_stay_told_while_exporters_hand_over() -> None:
    fires(
        MISSING,
        {
            ready(): "4x20 stale",
            workers("running"): "0x20 stale",
            ready(OTHER_EXPORTER): "_x19 4x30",
            workers("running", OTHER_EXPORTER): "_x19 0x30",
        },
        {"10m": NOBODY, "20m": NOBODY, "21m": NOBODY, "40m": NOBODY},
    )


UNSERVED = "OutboxDestinationUnserved"
CLAIMED = "outbox_messages_claimed_total"
SLOTS = "outbox_worker_slots"


def test_a_destination_that_no_worker_knows_is_told() -> None:
    fires(
        UNSERVED,
        {
            ready(): "3x30",
            ready(destination="sms"): "3x30",
            worker(CLAIMED, destination="mail"): "0x30",
            worker(SLOTS): "64x30",
        },
        {"9m": [], "11m": [{"severity": "warn", **SHOP, "destination": "sms"}]},
    )


def test_a_destination_is_served_while_its_workers_are_replaced() -> None:
    fires(
        UNSERVED,
        {
            ready(): "3x40",
            worker(CLAIMED, "a", destination="mail"): "0x15 stale",
            worker(SLOTS, "a"): "64x15 stale",
            worker(CLAIMED, "b", destination="mail"): "_x18 0x20",
            worker(SLOTS, "b"): "_x18 64x20",
        },
        {f"{minute}m": [] for minute in range(10, 38)},
    )


def test_nobody_is_said_to_serve_nothing_where_no_worker_is_scraped() -> None:
    fires(UNSERVED, {ready(): "3x30"}, {"15m": [], "30m": []})


def test_what_shares_a_name_with_others_is_not_judged() -> None:
    fires(
        UNSERVED,
        {
            ready(): "3x30",
            ready(destination="_other"): "3x30",
            worker(CLAIMED, destination="_other"): "0x30",
            worker(SLOTS): "64x30",
        },
        {"15m": [], "30m": []},
    )


KILLED = "OutboxWorkerKilled"
POD = {"namespace": "shop", "pod": "a", "container": "worker"}
KUBE = {**POD, "job": "kube-state-metrics"}
CODE = series("kube_pod_container_status_last_terminated_exitcode", **KUBE)
RESTARTS = series("kube_pod_container_status_restarts_total", **KUBE)


def test_a_killed_worker_is_told_for_a_quarter_of_an_hour() -> None:
    fires(
        KILLED,
        {CODE: "_x10 137x40", RESTARTS: "0x9 1x40", worker(SLOTS): "64x9 stale _x1 64x40"},
        {"9m": [], "11m": [{"severity": "warn", **POD}], "30m": []},
    )


def test_a_worker_that_ends_with_an_error_was_not_killed() -> None:
    fires(
        KILLED,
        {CODE: "_x10 1x40", RESTARTS: "0x9 1x40", worker(SLOTS): "64x50"},
        {"11m": [], "20m": []},
    )


def test_pods_that_are_no_workers_are_none_of_our_business() -> None:
    fires(
        KILLED,
        {CODE: "_x10 137x40", RESTARTS: "0x9 1x40", worker(SLOTS, "b"): "64x50"},
        {"11m": [], "20m": []},
    )


LOST = "OutboxLeasesLost"
LEASES_LOST = "outbox_leases_lost_total"


def test_leases_that_are_lost_again_and_again_are_told() -> None:
    fires(
        LOST,
        {worker(LEASES_LOST): "0x9 1x9 2x9 3x20"},
        {"20m": [], "26m": [{"severity": "warn", **SHOP}], "50m": []},
    )


def test_a_single_lost_lease_is_not_told() -> None:
    fires(LOST, {worker(LEASES_LOST): "0x9 1x40"}, {f"{minute}m": [] for minute in range(9, 40)})


def test_losses_are_told_although_the_pods_change() -> None:
    fires(
        LOST,
        {
            worker(LEASES_LOST, "a"): "0x4 1x6 2x4 stale",
            worker(LEASES_LOST, "b"): "_x10 0x4 1x9 2x9",
        },
        {"22m": [{"severity": "warn", **SHOP}]},
    )


EXPIRED = "OutboxExpiredLeases"


def expired(exporter: dict[str, str] = EXPORTER) -> str:
    return series("outbox_expired_leases", **exporter, destination="mail")


def test_expired_leases_that_nobody_takes_over_are_told() -> None:
    told = [{"severity": "warn", "source": "database", **MAIL}]
    fires(EXPIRED, {expired(): "0x9 2+1x30"}, {"19m": [], "21m": told, "38m": told})


def test_leases_that_are_taken_over_are_not_told() -> None:
    fires(EXPIRED, {expired(): "0x9 5x3 0x9 5x3 0x20"}, {"15m": [], "25m": [], "40m": []})


def test_expired_leases_stay_told_while_exporters_hand_over() -> None:
    told = [{"severity": "warn", "source": "database", **MAIL}]
    fires(
        EXPIRED,
        {expired(): "2x20 stale", expired(OTHER_EXPORTER): "_x19 2x20"},
        {"12m": told, "20m": told, "22m": told, "38m": told},
    )


def test_leases_that_keep_expiring_are_told_after_half_an_hour() -> None:
    fires(
        EXPIRED,
        {worker("outbox_leases_reclaimed_total"): "0x9 0+1x60"},
        {"35m": [], "45m": [{"severity": "warn", "source": "worker", **SHOP}]},
    )


def test_what_one_crash_left_behind_is_not_told() -> None:
    fires(
        EXPIRED,
        {worker("outbox_leases_reclaimed_total"): "0x9 40x60"},
        {f"{minute}m": [] for minute in range(10, 60, 3)},
    )


BREAKER = "OutboxBreakerOpen"
OPEN = "outbox_breaker_open"
FAILING = [{"severity": "warn", **MAIL}]


def test_a_destination_that_fails_for_all_is_told_after_ten_minutes() -> None:
    fires(
        BREAKER,
        {
            worker(OPEN, destination="mail"): "0x9 1x20 0x20",
            worker(OPEN, destination="sms"): "0x50",
        },
        {"19m": [], "21m": FAILING, "40m": []},
    )


@pytest.mark.parametrize("minutes", [3, 6, 9])
def test_a_failure_of_less_than_ten_minutes_is_not_told(minutes: int) -> None:
    fires(
        BREAKER,
        {
            worker(OPEN, "a", destination="mail"): f"0x9 1x{minutes - 1} 0x30",
            worker(OPEN, "b", destination="mail"): "0x50",
        },
        {f"{minute}m": [] for minute in range(9, 40)},
    )


def test_new_pods_do_not_hide_a_failing_destination() -> None:
    fires(
        BREAKER,
        {
            worker(OPEN, "a", destination="mail"): "1x12 stale",
            worker(OPEN, "b", destination="mail"): "_x13 0x1 1x20",
        },
        {f"{minute}m": FAILING for minute in range(11, 34)},
    )


@pytest.mark.parametrize(
    ("alert", "counter"),
    [
        ("OutboxPublisherFailures", "outbox_publisher_failures_total"),
        ("OutboxFinalizeRefused", "outbox_finalize_refused_total"),
    ],
)
class TestCountersThatShouldStandStill:
    def test_a_rise_is_told(self, alert: str, counter: str) -> None:
        fires(
            alert,
            {worker(counter, destination="mail"): "0x9 1x40"},
            {"9m": [], "11m": FAILING, "30m": []},
        )

    def test_a_rise_that_came_before_the_first_scrape_is_told(
        self, alert: str, counter: str
    ) -> None:
        fires(
            alert,
            {
                worker("process_start_time_seconds"): "_x20 1200x30",
                worker(counter, destination="mail"): "_x20 1x30",
            },
            {"19m": [], "21m": FAILING, "40m": []},
        )

    def test_pods_that_come_and_go_and_restart_are_not_told(self, alert: str, counter: str) -> None:
        fires(
            alert,
            {
                worker(counter, "a", destination="mail"): "2x20 stale",
                worker(counter, "b", destination="mail"): "2x25 0x30",
                worker(counter, "c", destination="mail"): "_x20 0x30",
                worker("process_start_time_seconds", "c"): "_x20 1200x30",
            },
            {f"{minute}m": [] for minute in range(10, 50, 3)},
        )
