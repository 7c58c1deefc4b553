"""Dead messages are told once, whoever exports them and whatever restarts."""

from __future__ import annotations

import pytest

from tests.support.promtool import fires, series

pytestmark = pytest.mark.broker

GROWTH = "OutboxDeadLetterGrowth"
BY_DATABASE = {"severity": "warn", "source": "database", "namespace": "shop", "destination": "mail"}
BY_WORKER = {**BY_DATABASE, "source": "worker"}
OLD = {"namespace": "shop", "instance": "old:9187"}
NEW = {"namespace": "shop", "instance": "new:9187"}
UP = series("outbox_collector_up", **OLD)
UP_NEW = series("outbox_collector_up", **NEW)
DEAD = series("outbox_dead_letter_messages", **OLD, destination="mail")
DEAD_NEW = series("outbox_dead_letter_messages", **NEW, destination="mail")


def worker(name: str, pod: str = "a", **labels: str) -> str:
    return series(name, namespace="shop", job="worker", instance=pod, **labels)


def buried(pod: str = "a", reason: str = "permanent") -> str:
    return worker("outbox_messages_dead_lettered_total", pod, destination="mail", reason=reason)


def test_a_dead_message_is_told_for_a_quarter_of_an_hour() -> None:
    fires(
        GROWTH,
        {UP: "1x60", DEAD: "0x29 1x30"},
        {"29m": [], "30m": [BY_DATABASE], "44m": [BY_DATABASE], "46m": [], "60m": []},
    )


def test_the_first_message_of_a_destination_that_nobody_had_seen_is_told_when_it_died() -> None:
    fires(
        GROWTH,
        {UP: "1x60", DEAD: "_x30 1x30"},
        {"29m": [], "30m": [BY_DATABASE], "44m": [BY_DATABASE], "46m": []},
    )


def test_one_more_is_told_although_there_are_many() -> None:
    fires(GROWTH, {UP: "1x60", DEAD: "500x29 501x30"}, {"29m": [], "31m": [BY_DATABASE]})


def test_what_died_long_ago_is_no_news() -> None:
    fires(GROWTH, {UP: "1x90", DEAD: "7x90"}, {"5m": [], "20m": [], "40m": [], "90m": []})


def test_what_was_requeued_and_died_again_is_told() -> None:
    fires(
        GROWTH,
        {UP: "1x60", DEAD: "5x29 0x2 1x30"},
        {"29m": [], "31m": [], "33m": [BY_DATABASE]},
    )


def test_fewer_dead_messages_are_no_growth() -> None:
    fires(
        GROWTH, {UP: "1x60", DEAD: "5x19 3x19 0x20"}, {"21m": [], "36m": [], "45m": [], "60m": []}
    )


def test_an_exporter_that_hands_over_to_another_one_tells_nothing_new() -> None:
    fires(
        GROWTH,
        {
            UP: "1x30 stale",
            DEAD: "5x30 stale",
            UP_NEW: "_x29 0 1x60",
            DEAD_NEW: "_x30 5x60",
        },
        {f"{minute}m": [] for minute in range(25, 70, 3)},
    )


def test_a_message_that_dies_while_two_exporters_run_is_told_once() -> None:
    fires(
        GROWTH,
        {
            UP: "1x32 stale",
            DEAD: "5x29 6x2 stale",
            UP_NEW: "_x29 1x60",
            DEAD_NEW: "_x29 5 6x60",
        },
        {"29m": [], "31m": [BY_DATABASE], "40m": [BY_DATABASE], "60m": []},
    )


@pytest.mark.parametrize("minutes", [1, 4, 8, 20, 90])
def test_a_gap_of_the_exporter_tells_nothing_new(minutes: int) -> None:
    gap = f"1x29 stale _x{minutes} 1x90"
    fires(
        GROWTH,
        {UP: gap, DEAD: gap.replace("1x", "5x")},
        {f"{minute}m": [] for minute in range(25, 60 + minutes, 2)},
    )


@pytest.mark.parametrize("minutes", [1, 4, 8, 20])
def test_a_database_that_cannot_be_asked_for_a_while_is_no_dead_message(minutes: int) -> None:
    fires(
        GROWTH,
        {UP: f"1x29 0x{minutes} 1x60", DEAD: f"5x29 stale _x{minutes} 5x60"},
        {f"{minute}m": [] for minute in range(25, 60 + minutes, 2)},
    )


def test_a_message_that_died_before_the_exporter_came_back_is_told_after_a_short_gap() -> None:
    fires(
        GROWTH,
        {UP: "1x29 stale _x3 1x60", DEAD: "5x29 stale _x3 6x60"},
        {"29m": [], "35m": [BY_DATABASE], "60m": []},
    )


def test_what_an_exporter_finds_at_its_first_start_is_no_news_but_what_dies_then_is() -> None:
    fires(
        GROWTH,
        {UP: "_x10 1x60", DEAD: "_x10 5x29 6x30"},
        {"12m": [], "26m": [], "39m": [], "41m": [BY_DATABASE], "60m": []},
    )


def test_an_empty_outbox_tells_nothing() -> None:
    fires(GROWTH, {UP: "1x60"}, {"0m": [], "20m": [], "60m": []})


def test_databases_and_destinations_are_told_apart() -> None:
    def of(name: str, database: str, **labels: str) -> str:
        return series(name, **OLD, database=database, **labels)

    fires(
        GROWTH,
        {
            of("outbox_collector_up", "orders"): "1x60",
            of("outbox_collector_up", "stock"): "1x60",
            of("outbox_dead_letter_messages", "orders", destination="mail"): "0x29 1x30",
            of("outbox_dead_letter_messages", "stock", destination="mail"): "3x60",
            of("outbox_dead_letter_messages", "stock", destination="sms"): "_x30 1x30",
        },
        {
            "35m": [
                {**BY_DATABASE, "database": "orders"},
                {**BY_DATABASE, "database": "stock", "destination": "sms"},
            ]
        },
    )


def test_a_worker_tells_what_it_buried() -> None:
    fires(
        GROWTH,
        {buried(): "0x29 1x30", buried(reason="max_attempts"): "0x60"},
        {"29m": [], "31m": [BY_WORKER], "46m": []},
    )


def test_a_counter_that_is_born_at_one_by_a_new_worker_counts() -> None:
    fires(
        GROWTH,
        {
            worker("process_start_time_seconds"): "_x30 1800x30",
            buried(): "_x30 1x30",
        },
        {"29m": [], "31m": [BY_WORKER], "50m": []},
    )


def test_a_counter_that_is_born_at_one_by_an_old_worker_counts() -> None:
    fires(
        GROWTH,
        {
            worker("process_start_time_seconds"): "-9000x60",
            worker("outbox_worker_slots"): "64x60",
            buried(): "_x30 1x30",
        },
        {"29m": [], "31m": [BY_WORKER], "50m": []},
    )


def test_a_worker_that_could_not_be_scraped_for_a_while_tells_nothing_new() -> None:
    fires(
        GROWTH,
        {
            worker("process_start_time_seconds"): "-9000x9 stale _x20 -9000x40",
            worker("outbox_worker_slots"): "64x9 stale _x20 64x40",
            buried(): "5x9 stale _x20 5x40",
        },
        {f"{minute}m": [] for minute in range(5, 70, 2)},
    )


def test_a_restart_of_a_worker_tells_nothing_new() -> None:
    fires(
        GROWTH,
        {
            worker("process_start_time_seconds"): "-9000x29 1800x40",
            worker("outbox_worker_slots"): "64x70",
            buried(): "5x29 0x40",
        },
        {f"{minute}m": [] for minute in range(20, 70, 2)},
    )


def test_workers_that_leave_and_come_tell_nothing_new() -> None:
    fires(
        GROWTH,
        {
            buried("a"): "5x60",
            buried("b"): "3x29 stale",
            worker("process_start_time_seconds", "c"): "_x30 1800x30",
            buried("c"): "_x30 0x30",
        },
        {f"{minute}m": [] for minute in range(20, 60, 2)},
    )


def test_what_a_worker_buried_before_it_left_is_told() -> None:
    fires(
        GROWTH,
        {buried("a"): "5x60", buried("b"): "3x27 4x2 stale"},
        {"27m": [], "32m": [BY_WORKER], "50m": []},
    )


SPIKE = "OutboxDeadLetterSpike"
SPIKING = [{"severity": "page", "namespace": "shop", "destination": "mail"}]


def attempts(pod: str = "a") -> str:
    return worker("outbox_publish_attempts_total", pod, destination="mail", outcome="ok")


def test_many_dead_messages_among_few_attempts_wake_somebody() -> None:
    fires(SPIKE, {attempts(): "0+50x40", buried(): "0x19 0+5x20"}, {"19m": [], "35m": SPIKING})


def test_twenty_dead_messages_wake_nobody() -> None:
    fires(SPIKE, {attempts(): "0+5x40", buried(): "0x19 20x20"}, {"21m": [], "30m": []})


def test_many_dead_messages_among_very_many_attempts_wake_nobody() -> None:
    fires(SPIKE, {attempts(): "0+1000x40", buried(): "0x19 0+5x20"}, {"30m": [], "40m": []})


def test_a_spike_outlives_the_workers_that_saw_it() -> None:
    fires(
        SPIKE,
        {
            attempts("a"): "0+50x25 stale",
            buried("a"): "0x19 0+10x5 stale",
            attempts("b"): "0+50x40",
            buried("b"): "0x40",
        },
        {"19m": [], "28m": SPIKING, "45m": []},
    )


def test_a_spike_that_came_before_the_first_scrape_of_a_worker_wakes_somebody() -> None:
    fires(
        SPIKE,
        {
            # Another one buries few.
            attempts("a"): "0+1x50",
            buried("a"): "0x19 0+1x2 2x30",
            worker("process_start_time_seconds", "b"): "_x20 1200x30",
            attempts("b"): "_x20 100x30",
            buried("b"): "_x20 30x30",
        },
        {"19m": [], "21m": SPIKING, "40m": []},
    )


def test_many_attempts_before_the_first_scrape_are_no_spike() -> None:
    fires(
        SPIKE,
        {
            worker("process_start_time_seconds"): "_x20 1200x30",
            attempts(): "_x20 10000x30",
            buried(): "_x20 30x30",
        },
        {f"{minute}m": [] for minute in range(19, 50, 2)},
    )


LANES = "OutboxLanesBlocked"
BLOCKED = series("outbox_blocked_lanes", **OLD, destination="mail")
BLOCKED_NEW = series("outbox_blocked_lanes", **NEW, destination="mail")
BLOCKING = [{"severity": "warn", "namespace": "shop", "destination": "mail"}]


def test_a_blocked_lane_is_told_after_five_minutes_and_until_it_is_free() -> None:
    fires(LANES, {BLOCKED: "0x9 2x20 0x9"}, {"14m": [], "16m": BLOCKING, "32m": []})


def test_a_lane_that_is_soon_free_is_not_told() -> None:
    fires(LANES, {BLOCKED: "0x9 1x3 0x20"}, {"11m": [], "15m": [], "20m": []})


def test_a_blocked_lane_stays_told_while_exporters_hand_over() -> None:
    fires(
        LANES,
        {BLOCKED: "1x20 stale", BLOCKED_NEW: "_x19 1x40"},
        {"10m": BLOCKING, "20m": BLOCKING, "21m": BLOCKING, "40m": BLOCKING},
    )
