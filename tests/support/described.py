"""A page of metrics, compared with the catalogue."""

from __future__ import annotations

import urllib.request
from typing import TYPE_CHECKING, NamedTuple

from prometheus_client.openmetrics import parser as openmetrics

from pgoutbox.telemetry.catalogue import METRICS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from prometheus_client.metrics_core import Metric as Family

    from pgoutbox.telemetry.catalogue import Metric

OPEN = "application/openmetrics-text;version=1.0.0"
PLAIN = "text/plain;version=0.0.4"
SUFFIX = {"counter": "_total", "info": "_info"}


class Page(NamedTuple):
    """One scrape."""

    text: str
    content_type: str


def scrape(port: int, accept: str = OPEN) -> Page:
    """As Prometheus does it, on this machine."""
    url = f"http://127.0.0.1:{port}/metrics"
    request = urllib.request.Request(url, headers={"Accept": accept})
    with urllib.request.urlopen(request, timeout=5) as answer:  # noqa: S310 - our own process
        return Page(answer.read().decode(), answer.headers["Content-Type"])


def families(page: Page) -> dict[str, Family]:
    """By the name that the catalogue has."""
    parse: Callable[[str], Iterable[Family]] = openmetrics.text_string_to_metric_families
    return {
        family.name + SUFFIX.get(family.type, ""): family
        for family in parse(page.text)
        if family.name.startswith("outbox_")
    }


def value(page: Page, name: str, /, **labels: str) -> float:
    """Of the one sample with exactly these labels."""
    found = families(page)[next(metric.name for metric in METRICS if name in metric.series)]
    (number,) = (
        each.value for each in found.samples if each.name == name and each.labels == labels
    )
    return number


def assert_as_described(
    page: Page, catalogue: Sequence[Metric], *, named: frozenset[str] = frozenset()
) -> None:
    """In both directions: names, types, help, labels and the values that they may have.

    ``named``: labels that tell databases apart.
    """
    found = families(page)
    assert found.keys() == {metric.name for metric in catalogue}
    for metric in catalogue:
        family = found[metric.name]
        assert (family.type, family.documentation) == (metric.type, metric.help)
        labels = {*metric.labels, *(named if metric.per_database else ())}
        assert labels <= metric.allowed_labels
        told = {frozenset(each.labels) - {"le"} for each in family.samples}
        assert told == {frozenset(labels)}, metric.name
        for label, values in metric.values.items():
            assert {each.labels[label] for each in family.samples} == set(values)
        bounds = [each.labels["le"] for each in family.samples if "le" in each.labels]
        assert set(bounds) == {*map(str, metric.buckets), *(["+Inf"] if bounds else [])}
        assert {each.name for each in family.samples} == set(metric.series)
