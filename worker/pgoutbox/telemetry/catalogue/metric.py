"""What is to be known about a metric, and how its samples are put together."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    InfoMetricFamily,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from prometheus_client.metrics_core import Metric as Family

    from pgoutbox.telemetry.tally import Distribution

Component = Literal["worker", "exporter", "operator"]
Kind = Literal["counter", "gauge", "histogram", "info"]
Values = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Metric:
    """One metric."""

    name: str
    """As in a query; of a histogram without ``_bucket``, ``_sum`` and ``_count``."""
    type: Kind
    help: str
    """Plain text, which is exported and printed in docs/metrics.md."""
    labels: Values = ()
    """Those that every sample has, in this order."""
    components: tuple[Component, ...] = ("worker",)
    """Who exports it."""
    values: Mapping[str, Values] = field(default_factory=dict, hash=False)
    """What a label may say, where that is a closed list. Each combination exists from the start."""
    buckets: tuple[float, ...] = ()
    """Upper bounds, in ascending order, the infinite one left out. Of histograms only."""
    more: str = ""
    """Markdown that follows ``help`` in docs/metrics.md."""
    per_database: bool = False
    """Where one exporter watches several databases, the label ``database`` is added.

    An operator adds it always, and the ``namespace`` that its DSN is from.
    """

    @property
    def series(self) -> Values:
        """The names that samples of it have."""
        if self.type != "histogram":
            return (self.name,)
        return tuple(f"{self.name}_{part}" for part in ("bucket", "sum", "count"))

    @property
    def allowed_labels(self) -> frozenset[str]:
        """Every label that a sample may have, apart from those that Prometheus adds."""
        more = ["namespace", "database"] if self.per_database else []
        more += ["le"] * (self.type == "histogram")
        return frozenset([*self.labels, *more])

    def counter(self, values: Mapping[Values, float]) -> Family:
        """Its samples, by the values of their labels."""
        family = CounterMetricFamily(self.name, self.help, labels=self.labels)
        for key, value in values.items():
            family.add_metric(key, value)
        return family

    def gauge(self, values: Mapping[Values, float], *, before: Values = ()) -> Family:
        """As `counter`. ``before``: names of labels that come before its own ones."""
        family = GaugeMetricFamily(self.name, self.help, labels=(*before, *self.labels))
        for key, value in values.items():
            family.add_metric(key, float(value))
        return family

    def histogram(self, values: Mapping[Values, Distribution]) -> Family:
        """As `counter`, of observations."""
        family = HistogramMetricFamily(self.name, self.help, labels=self.labels)
        for key, seen in values.items():
            family.add_metric(key, seen.buckets(), seen.total)
        return family

    def info(self, value: Mapping[str, str]) -> Family:
        """The one sample."""
        return InfoMetricFamily(self.name.removesuffix("_info"), self.help, value=dict(value))
