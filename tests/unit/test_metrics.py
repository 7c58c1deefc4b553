from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder, generate_latest
from prometheus_client.openmetrics import parser

from pgoutbox import events
from pgoutbox.events import Settled
from pgoutbox.outcome import (
    Bury,
    Deferred,
    DeferUntil,
    Finish,
    Interrupted,
    Outcome,
    PermanentFailure,
    Published,
    Release,
    Retry,
    RetryableFailure,
    Transition,
    Unavailable,
    Unstarted,
)
from pgoutbox.telemetry.metrics import Metrics
from pgoutbox.testing import make_message

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from prometheus_client.metrics_core import Metric

    from pgoutbox.message import ClaimedMessage


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def metrics(clock: Clock) -> Metrics:
    return Metrics(destinations=["orders", "audit"], slots=200, clock=clock)


def value(metrics: Metrics, name: str, **labels: str) -> float | None:
    return metrics.registry.get_sample_value(name, labels)


def settled(
    outcome: Outcome,
    transition: Transition,
    *,
    message: ClaimedMessage | None = None,
    seconds: float = 0.02,
) -> Settled:
    message = message or make_message(destination="orders")
    return Settled(message, outcome, transition, 1000.0, seconds)


def finalized(
    written: Sequence[Settled] = (),
    *,
    lost: Sequence[Settled] = (),
    already_written: Sequence[Settled] = (),
    unknown: Sequence[Settled] = (),
    refused: Sequence[Settled] = (),
) -> events.Finalized:
    why = [events.Refused(each, "x") for each in refused]
    return events.Finalized(written, lost, already_written, unknown, why, seconds=0.004)


def test_every_series_of_a_known_destination_starts_at_zero(metrics: Metrics) -> None:
    outcomes = ("ok", "retryable", "permanent", "deferred", "unavailable", "cancelled")
    reasons = ("permanent", "max_attempts", "defer_max_age", "lease_expired")
    for name in ("orders", "audit"):
        for outcome in outcomes:
            labels = {"destination": name, "outcome": outcome}
            assert value(metrics, "outbox_publish_attempts_total", **labels) == 0
        for reason in reasons:
            labels = {"destination": name, "reason": reason}
            assert value(metrics, "outbox_messages_dead_lettered_total", **labels) == 0
        assert value(metrics, "outbox_messages_claimed_total", destination=name) == 0
        assert value(metrics, "outbox_messages_published_total", destination=name) == 0
        assert value(metrics, "outbox_publisher_failures_total", destination=name) == 0
        assert value(metrics, "outbox_publish_duration_seconds_count", destination=name) == 0
        assert value(metrics, "outbox_delivery_latency_seconds_count", destination=name) == 0
    for reason in ("drain", "unavailable", "unstarted"):
        assert value(metrics, "outbox_leases_released_total", reason=reason) == 0
    assert value(metrics, "outbox_leases_lost_total") == 0
    assert value(metrics, "outbox_leases_reclaimed_total") == 0


def test_a_claim_is_counted_by_destination(metrics: Metrics) -> None:
    names = ["orders", "audit", "orders"]
    claimed = [make_message(id=i, destination=name) for i, name in enumerate(names)]
    metrics.on_event(events.Claimed(claimed, reclaimed=2, seconds=0.003))
    assert value(metrics, "outbox_messages_claimed_total", destination="orders") == 2
    assert value(metrics, "outbox_messages_claimed_total", destination="audit") == 1
    assert value(metrics, "outbox_leases_reclaimed_total") == 2
    assert value(metrics, "outbox_claim_duration_seconds_sum") == 0.003


@pytest.mark.parametrize(
    ("outcome", "transition", "label"),
    [
        (Published(), Finish(), "ok"),
        (RetryableFailure("x"), Retry(1.0, "x"), "retryable"),
        (PermanentFailure("x"), Bury("x"), "permanent"),
        (Deferred(1.0, "x"), DeferUntil(1.0, "x"), "deferred"),
        (Unavailable("x", works_for_others=False), Release(1.0, "x"), "unavailable"),
        (Interrupted(), Retry(1.0, "x"), "cancelled"),
    ],
)
def test_an_attempt_is_counted_by_what_was_observed(
    metrics: Metrics, outcome: Outcome, transition: Transition, label: str
) -> None:
    metrics.on_event(finalized([settled(outcome, transition)] * 3))
    labels = {"destination": "orders", "outcome": label}
    assert value(metrics, "outbox_publish_attempts_total", **labels) == 3
    assert value(metrics, "outbox_publish_duration_seconds_count", destination="orders") == 3


def test_what_was_never_started_is_no_attempt(metrics: Metrics) -> None:
    metrics.on_event(finalized([settled(Unstarted(), Release())]))
    assert value(metrics, "outbox_publish_duration_seconds_count", destination="orders") == 0
    assert value(metrics, "outbox_leases_released_total", reason="unstarted") == 1
    text = generate_latest(metrics.registry).decode()
    attempts = [line for line in text.splitlines() if line.startswith("outbox_publish_attempts")]
    assert attempts
    assert all(line.endswith(" 0.0") for line in attempts)


def test_only_what_was_recorded_counts_as_published(metrics: Metrics) -> None:
    done = settled(Published(), Finish())
    metrics.on_event(
        finalized([done], lost=[done], already_written=[done], unknown=[done], refused=[done])
    )
    ok = {"destination": "orders", "outcome": "ok"}
    assert value(metrics, "outbox_publish_attempts_total", **ok) == 5
    assert value(metrics, "outbox_messages_published_total", destination="orders") == 3
    assert value(metrics, "outbox_delivery_latency_seconds_count", destination="orders") == 3
    assert value(metrics, "outbox_leases_lost_total") == 1
    assert value(metrics, "outbox_finalize_refused_total", destination="orders") == 1


@pytest.mark.parametrize(
    ("outcome", "reason"),
    [
        (PermanentFailure("x"), "permanent"),
        (RetryableFailure("x"), "max_attempts"),
        (Unavailable("x", works_for_others=True), "max_attempts"),
        (Deferred(1.0, "x"), "defer_max_age"),
    ],
)
def test_a_dead_letter_is_counted_by_its_reason(
    metrics: Metrics, outcome: Outcome, reason: str
) -> None:
    metrics.on_event(finalized([settled(outcome, Bury("x"))], lost=[settled(outcome, Bury("x"))]))
    labels = {"destination": "orders", "reason": reason}
    assert value(metrics, "outbox_messages_dead_lettered_total", **labels) == 1


def test_what_the_reaper_buried_died_of_its_lease(metrics: Metrics) -> None:
    metrics.on_event(events.Reaped({"orders": 2}))
    labels = {"destination": "orders", "reason": "lease_expired"}
    assert value(metrics, "outbox_messages_dead_lettered_total", **labels) == 2


def test_a_release_during_the_drain_is_put_down_to_it(metrics: Metrics) -> None:
    unreached = settled(Unavailable("x", works_for_others=False), Release(1.0, "x"))
    metrics.on_event(finalized([unreached]))
    assert value(metrics, "outbox_worker_draining") == 0
    metrics.on_event(events.DrainStarted("SIGTERM", in_flight=2))
    metrics.on_event(finalized([unreached, settled(Unstarted(), Release())]))
    metrics.on_event(events.DrainEnded(0, 2, 0, 0, seconds=1.5))
    assert value(metrics, "outbox_leases_released_total", reason="unavailable") == 1
    assert value(metrics, "outbox_leases_released_total", reason="drain") == 2
    assert value(metrics, "outbox_worker_draining") == 1
    assert value(metrics, "outbox_drain_duration_seconds_bucket", le="2.5") == 1


def test_a_lost_lease_is_a_cancelled_attempt(metrics: Metrics) -> None:
    metrics.on_event(events.LeaseLost([make_message(destination="orders")] * 2))
    labels = {"destination": "orders", "outcome": "cancelled"}
    assert value(metrics, "outbox_publish_attempts_total", **labels) == 2
    assert value(metrics, "outbox_leases_lost_total") == 2


def test_a_lease_that_is_only_unconfirmed_is_counted_when_its_publish_ends(
    metrics: Metrics,
) -> None:
    before = generate_latest(metrics.registry)
    metrics.on_event(events.LeaseUnconfirmed([make_message(destination="orders")]))
    after = generate_latest(metrics.registry)
    assert [x for x in after.splitlines() if x.startswith(b"outbox")] == [
        x for x in before.splitlines() if x.startswith(b"outbox")
    ]


def test_a_bug_in_a_publisher_is_counted(metrics: Metrics) -> None:
    message = make_message(destination="audit")
    metrics.on_event(events.PublisherFailed(message, KeyError("x")))
    assert value(metrics, "outbox_publisher_failures_total", destination="audit") == 1


def test_latency_runs_from_creation_over_the_wait_in_the_lane_to_the_publishs_end(
    metrics: Metrics, clock: Clock
) -> None:
    first, second = (make_message(id=i, destination="orders", age=4.0) for i in (1, 2))
    metrics.on_event(events.Claimed([first, second], reclaimed=0, seconds=0.001))
    clock.now += 3.0
    late = Settled(second, Published(), Finish(), started=clock.now, seconds=0.5)
    metrics.on_event(finalized([settled(Published(), Finish(), message=first, seconds=0.5), late]))
    total = value(metrics, "outbox_delivery_latency_seconds_sum", destination="orders")
    assert total == pytest.approx((4.0 + 0.5) + (4.0 + 3.0 + 0.5))


def test_a_message_in_flight_is_remembered_until_it_is_accounted_for(metrics: Metrics) -> None:
    claimed = [make_message(id=i, destination="orders") for i in range(7)]
    metrics.on_event(events.Claimed(claimed, reclaimed=0, seconds=0.001))
    each = [settled(Published(), Finish(), message=message) for message in claimed]
    metrics.on_event(
        finalized(
            each[:1],
            lost=each[1:2],
            already_written=each[2:3],
            unknown=each[3:4],
            refused=each[4:5],
        )
    )
    metrics.on_event(events.LeaseLost(claimed[5:6]))
    metrics.on_event(events.PublisherFailed(claimed[6], KeyError("x")))
    assert metrics._tally._claimed_at == {}


def test_destinations_without_number_share_one_label() -> None:
    names = [f"d{i}" for i in range(60)]
    metrics = Metrics(destinations=names, slots=1)
    metrics.on_event(
        events.Claimed([make_message(destination=name) for name in names], 0, seconds=0.001)
    )
    assert value(metrics, "outbox_messages_claimed_total", destination="d49") == 1
    assert value(metrics, "outbox_messages_claimed_total", destination="d50") is None
    assert value(metrics, "outbox_messages_claimed_total", destination="_other") == 10


def test_slots_and_connections_are_asked_for_at_each_scrape(metrics: Metrics) -> None:
    assert value(metrics, "outbox_worker_slots") == 200
    assert value(metrics, "outbox_worker_busy_slots") == 0
    assert value(metrics, "outbox_db_pool_connections", state="idle") == 0
    assert value(metrics, "outbox_db_pool_errors_total") == 0
    busy = [3]
    metrics.watch_slots(lambda: busy[0])
    stats = {"pool_size": 3, "pool_available": 1, "requests_waiting": 4, "requests_errors": 5}
    metrics.watch_pool(lambda: stats)
    assert value(metrics, "outbox_worker_busy_slots") == 3
    busy[0] = 5
    assert value(metrics, "outbox_worker_busy_slots") == 5
    assert value(metrics, "outbox_db_pool_connections", state="idle") == 1
    assert value(metrics, "outbox_db_pool_connections", state="used") == 2
    assert value(metrics, "outbox_db_pool_requests_waiting") == 4
    assert value(metrics, "outbox_db_pool_errors_total") == 5


def test_what_is_exported_can_be_read_as_open_metrics(metrics: Metrics) -> None:
    metrics.on_event(finalized([settled(Published(), Finish())]))
    encode, _ = choose_encoder("application/openmetrics-text;version=1.0.0")
    text = encode(metrics.registry).decode()
    parse: Callable[[str], Iterable[Metric]] = parser.text_string_to_metric_families
    families = {family.name: family for family in parse(text)}
    assert families["outbox_publish_duration_seconds"].type == "histogram"
    assert families["outbox_build"].type == "info"
    assert "process_resident_memory_bytes" in families


def test_two_workers_in_one_process_do_not_meet() -> None:
    one, two = (Metrics(destinations=["orders"], slots=1) for _ in range(2))
    one.on_event(events.Reaped({"orders": 1}))
    labels = {"destination": "orders", "reason": "lease_expired"}
    assert value(one, "outbox_messages_dead_lettered_total", **labels) == 1
    assert value(two, "outbox_messages_dead_lettered_total", **labels) == 0


def test_a_registry_may_be_shared_with_others() -> None:
    registry = CollectorRegistry()
    assert Metrics(destinations=[], slots=1, registry=registry).registry is registry
