"""The exporter as people run it: a process that is scraped."""

from __future__ import annotations

import sys
import urllib.request
from typing import TYPE_CHECKING, Self

from prometheus_client.parser import text_string_to_metric_families

from tests.support.workers import WorkerProcess

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from prometheus_client.metrics_core import Metric

Samples = dict[tuple[str, ...], float]


class ExporterProcess(WorkerProcess):
    """``pgoutbox exporter`` as a process that looks each second; leaving the context kills it."""

    def __init__(self, dsn: str, *words: str, **settings: str) -> None:
        super().__init__(dsn, "", DATABASE__INSECURE="true", **settings)
        # Not an exporter's: it has no destinations.
        self._environ.pop("PGOUTBOX_DESTINATIONS__DEFAULT__PUBLISH_TIMEOUT")
        self._command = [sys.executable, "-m", "pgoutbox", "exporter", "--interval", "1", *words]

    def started(self) -> Self:
        """Start it and return once it listens."""
        self.start().wait_for("exporter started")
        return self

    def scrape(self) -> Samples:
        """The samples, by their name and their labels' values in the order of the labels' names."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/metrics", timeout=5) as answer:
            return samples(answer.read().decode())


def samples(text: str) -> Samples:
    """What a page says, except for the process's own metrics."""
    parse: Callable[[str], Iterable[Metric]] = text_string_to_metric_families
    return {
        (sample.name, *(value for _, value in sorted(sample.labels.items()))): sample.value
        for family in parse(text)
        for sample in family.samples
        if sample.name.startswith("outbox_")
    }
