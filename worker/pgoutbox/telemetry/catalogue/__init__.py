"""Every metric that is exported: what the exporting code and docs/metrics.md are made from.

Whoever writes a query finds here which names and labels exist. A new metric is an entry in
`worker`, `exporter` or `operator`.
"""

from pgoutbox.telemetry.catalogue.exporter import EXPORTER
from pgoutbox.telemetry.catalogue.metric import Component, Metric
from pgoutbox.telemetry.catalogue.operator import OPERATOR
from pgoutbox.telemetry.catalogue.worker import WORKER

METRICS: tuple[Metric, ...] = tuple(dict.fromkeys((*WORKER, *EXPORTER, *OPERATOR)))
"""All of them, each once whoever exports it."""
BY_NAME = {metric.name: metric for metric in METRICS}

__all__ = ["BY_NAME", "EXPORTER", "METRICS", "OPERATOR", "WORKER", "Component", "Metric"]
