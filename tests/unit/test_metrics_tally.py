from __future__ import annotations

from hypothesis import given, strategies as st
from prometheus_client import CollectorRegistry, Histogram

from pgoutbox import events
from pgoutbox.telemetry.metrics import Metrics
from pgoutbox.telemetry.tally import (
    DELIVERY_SECONDS,
    MAX_DESTINATIONS,
    PUBLISH_SECONDS,
    Distribution,
    WorkerTally,
)
from pgoutbox.testing import make_message


@given(
    st.lists(
        st.lists(
            st.floats(min_value=0, max_value=10_000) | st.sampled_from(DELIVERY_SECONDS),
            max_size=30,
        )
    )
)
def test_a_distribution_counts_as_the_client_librarys_histogram_does(
    batches: list[list[float]],
) -> None:
    registry = CollectorRegistry()
    theirs = Histogram("x", "x", buckets=DELIVERY_SECONDS, registry=registry)
    ours = Distribution(DELIVERY_SECONDS)
    for batch in batches:
        ours.add(batch)
        for each in batch:
            theirs.observe(each)
    for bound, count, *_ in ours.buckets():
        assert registry.get_sample_value("x_bucket", {"le": bound}) == count


def test_the_deadline_that_alerts_are_about_is_a_buckets_bound() -> None:
    assert 30.0 in DELIVERY_SECONDS
    assert sorted(PUBLISH_SECONDS) == list(PUBLISH_SECONDS)
    assert sorted(DELIVERY_SECONDS) == list(DELIVERY_SECONDS)


def test_nothing_changes_by_an_empty_batch() -> None:
    ours = Distribution((1.0, 2.0))
    ours.add([])
    assert ours.buckets() == [("1.0", 0), ("2.0", 0), ("+Inf", 0)]
    assert ours.total == 0


def test_a_breaker_that_closes_does_not_hide_another_one_that_shares_its_label() -> None:
    names = [f"destination {number}" for number in range(MAX_DESTINATIONS + 3)]
    metrics = Metrics(destinations=names, slots=1)

    def opened() -> float | None:
        return metrics.registry.get_sample_value("outbox_breaker_open", {"destination": "_other"})

    metrics.on_event(events.BreakerChanged(names[-1], "open", "down"))
    metrics.on_event(events.BreakerChanged(names[-2], "open", "down"))
    metrics.on_event(events.BreakerChanged(names[-1], "closed", ""))
    assert opened() == 1
    metrics.on_event(events.BreakerChanged(names[-2], "closed", ""))
    assert opened() == 0


def test_claims_of_which_nobody_tells_the_end_are_not_kept_for_ever() -> None:
    tally = WorkerTally(["orders"], slots=10)
    for number in range(100):
        batch = [make_message(id=5 * number + each) for each in range(5)]
        tally.claimed(events.Claimed(batch, 0, 0.01), now=1.0)
    assert len(tally._claimed_at) == 20
