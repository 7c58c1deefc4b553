"""Of sampled messages the histograms name examples, whose traces tell where the time went."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest
from prometheus_client.exposition import choose_encoder, generate_latest
from prometheus_client.openmetrics import parser

from pgoutbox import events
from pgoutbox.events import Settled
from pgoutbox.outcome import (
    Finish,
    Outcome,
    Published,
    Release,
    Retry,
    RetryableFailure,
    Transition,
    Unstarted,
)
from pgoutbox.telemetry.metrics import Metrics
from pgoutbox.testing import make_message

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from prometheus_client.metrics_core import Metric
    from prometheus_client.samples import Exemplar

PUBLISH = "outbox_publish_duration_seconds"
LATENCY = "outbox_delivery_latency_seconds"
SPAN = "00f067aa0ba902b7"


@pytest.fixture
def metrics() -> Metrics:
    return Metrics(destinations=["orders"], slots=1, clock=lambda: 1000.0)


def parent(number: int, flags: str = "01") -> str:
    return f'{{"traceparent": "00-{number:032x}-{SPAN}-{flags}"}}'


def settled(
    headers: str,
    *,
    seconds: float = 0.02,
    age: float = 0.0,
    outcome: Outcome | None = None,
    transition: Transition | None = None,
) -> Settled:
    message = make_message(destination="orders", headers_json=headers, age=age)
    return Settled(message, outcome or Published(), transition or Finish(), 1000.0, seconds)


def finalize(metrics: Metrics, *written: Settled, lost: list[Settled] | None = None) -> None:
    metrics.on_event(events.Finalized(list(written), lost or [], [], [], [], seconds=0.004))


def exemplars(metrics: Metrics, name: str) -> dict[str, Exemplar]:
    """By the bound of their bucket, as a Prometheus reads them."""
    encode, _ = choose_encoder("application/openmetrics-text;version=1.0.0")
    parse: Callable[[str], Iterable[Metric]] = parser.text_string_to_metric_families
    return {
        sample.labels["le"]: sample.exemplar
        for family in parse(encode(metrics.registry).decode())
        for sample in family.samples
        if family.name == name and sample.exemplar
    }


def test_a_sampled_message_is_the_example_of_its_bucket(metrics: Metrics) -> None:
    finalize(metrics, settled(parent(7), seconds=0.02, age=40.0))
    (bound, exemplar) = exemplars(metrics, PUBLISH).popitem()
    assert bound == "0.025"
    assert exemplar.labels == {"trace_id": f"{7:032x}", "span_id": SPAN}
    assert exemplar.value == 0.02
    assert exemplar.timestamp is not None
    assert abs(float(exemplar.timestamp) - time.time()) < 60
    (bound, exemplar) = exemplars(metrics, LATENCY).popitem()
    assert bound == "60.0"
    assert exemplar.value == pytest.approx(40.02)


def test_the_wait_between_claim_and_publish_counts_in_an_example(metrics: Metrics) -> None:
    one = settled(parent(7), seconds=0.5, age=4.0)
    late = one._replace(started=1003.0)
    metrics.on_event(events.Claimed([one.message], reclaimed=0, seconds=0.001))
    finalize(metrics, late)
    assert exemplars(metrics, LATENCY)["10.0"].value == pytest.approx(7.5)
    assert metrics.registry.get_sample_value(f"{LATENCY}_sum", {"destination": "orders"}) == 7.5


def test_what_is_not_sampled_or_malformed_is_no_example(metrics: Metrics) -> None:
    finalize(
        metrics,
        settled("{}"),
        settled('{"tenant": "a"}'),
        settled(parent(7, flags="00")),
        settled(parent(0)),
    )
    assert exemplars(metrics, PUBLISH) == exemplars(metrics, LATENCY) == {}


def test_the_slowest_of_a_batch_is_shown_and_a_later_one_takes_its_place(
    metrics: Metrics,
) -> None:
    finalize(metrics, *(settled(parent(number), seconds=0.01 + number / 1000) for number in (1, 3)))
    assert exemplars(metrics, PUBLISH)["0.025"].labels["trace_id"].endswith("3")
    finalize(metrics, settled(parent(2), seconds=0.011))
    finalize(metrics, settled(parent(4), seconds=60.0))
    shown = {
        bound: each.labels["trace_id"][-1] for bound, each in exemplars(metrics, PUBLISH).items()
    }
    assert shown == {"0.025": "2", "+Inf": "4"}


def test_a_failed_publish_is_an_example_of_a_publish_only(metrics: Metrics) -> None:
    finalize(
        metrics,
        settled(parent(1), outcome=RetryableFailure("x"), transition=Retry(1.0, "x")),
        settled(parent(2), seconds=9.0, outcome=Unstarted(), transition=Release()),
        lost=[settled(parent(3), seconds=3.0)],
    )
    assert {each.labels["trace_id"][-1] for each in exemplars(metrics, PUBLISH).values()} == {
        "1",
        "3",
    }
    assert exemplars(metrics, LATENCY) == {}


def test_who_does_not_ask_for_open_metrics_gets_no_examples(metrics: Metrics) -> None:
    finalize(metrics, settled(parent(7)))
    assert b"trace_id" not in generate_latest(metrics.registry)
