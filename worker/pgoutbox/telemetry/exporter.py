"""What the table holds, as Prometheus gauges: looked at by the clock, whoever scrapes.

One process per database exports these, so that no sum counts them twice. Nothing old is shown:
while the database cannot be asked there are no gauges, and `outbox_collector_up` is 0. That is also
0 where only the statistics are missing; the horizon, which may be why, is shown all the same.
"""

from __future__ import annotations

import platform
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.registry import Collector

from pgoutbox._version import __version__
from pgoutbox.telemetry.catalogue import exporter as names
from pgoutbox.telemetry.catalogue.worker import BUILD

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from prometheus_client.metrics_core import Metric as Family

    from pgoutbox.database.horizon import Horizon
    from pgoutbox.database.statistics import DestinationStatistics, Statistics, WorkerStatistics
    from pgoutbox.database.upkeep import Upkeep
    from pgoutbox.telemetry.catalogue.metric import Metric, Values
    from pgoutbox.telemetry.exporter_source import Source

SILENT_AFTER = 15.0
"""Seconds after its last heartbeat from which a worker counts as silent."""

STATES = {"ready": "ready", "waiting": "waiting", "scheduled": "scheduled", "leased": "processing"}
NUMBERS = {
    names.OLDEST_PENDING_AGE: "oldest_pending_age",
    names.OLDEST_READY_AGE: "oldest_ready_age",
    names.EXPIRED_LEASES: "expired",
    names.DEAD_LETTER_MESSAGES: "dead",
    names.BLOCKED_LANES: "blocked_lanes",
    names.OLDEST_BLOCKED_AGE: "oldest_blocked_age",
}


class Exporter(Collector):
    """Collector of ``registry``: the gauges of its sources.

    All of them are told from each other by the same labels, or there is one and it needs none.
    """

    def __init__(
        self, sources: Sequence[Source], *, registry: CollectorRegistry | None = None
    ) -> None:
        self.registry = registry or CollectorRegistry()
        self._sources = sources
        self.registry.register(self)
        ProcessCollector(registry=self.registry)

    def collect(self) -> Iterator[Family]:
        """What is exported. Asks nobody."""
        pages = [_page(source) for source in self._sources]
        labels = next((tuple(source.where) for source in self._sources), ())
        for metric in names.EXPORTER:
            samples: dict[Values, float] = {}
            for page in pages:
                samples |= page.get(metric, {})
            if samples:
                yield metric.gauge(samples, before=labels)
        yield BUILD.info({"version": __version__, "python": platform.python_version()})


class Page:
    """The samples of one source."""

    def __init__(self, source: Source) -> None:
        self._before = tuple(source.where.values())
        self.samples: dict[Metric, dict[Values, float]] = {}

    def add(self, metric: Metric, value: float | None, *labels: str) -> None:
        """One sample; none where there is no value."""
        if value is not None:
            self.samples.setdefault(metric, {})[*self._before, *labels] = value


def _page(source: Source) -> Mapping[Metric, Mapping[Values, float]]:
    page = Page(source)
    look = source.look
    counted = None if look is None else look.statistics
    page.add(names.COLLECTOR_UP, counted is not None)
    page.add(names.COLLECTOR_DURATION, source.duration)
    page.add(names.COLLECTOR_LAST_SUCCESS, source.succeeded_at)
    if counted is not None:
        served = {name for worker in counted.workers for name in worker.destinations}
        shown = source.labels.spread(counted.destinations, served=served)
        _add_destinations(page, counted, shown)
        _add_workers(page, counted.workers)
    if look is not None:
        _add_horizon(page, look.horizon)
        _add_upkeep(page, look.upkeep)
    return page.samples


def _add_destinations(
    page: Page, found: Statistics, shown: Mapping[str, DestinationStatistics]
) -> None:
    for name, counts in shown.items():
        for state, field in STATES.items():
            page.add(names.PENDING_MESSAGES, getattr(counts, field), name, state)
        for metric, field in NUMBERS.items():
            page.add(metric, getattr(counts, field), name)
        if counts.undelivered:
            page.add(names.OLDEST_PENDING_TIMESTAMP, found.at - counts.oldest_pending_age, name)


def _add_workers(page: Page, workers: Sequence[WorkerStatistics]) -> None:
    states = ["silent" if each.seen_age > SILENT_AFTER else each.state for each in workers]
    for state in names.WORKERS.values["state"]:
        page.add(names.WORKERS, states.count(state), state)


def _add_horizon(page: Page, seen: Horizon | None) -> None:
    if seen is not None:
        page.add(names.XMIN_AGE_SECONDS, seen.seconds)
        page.add(names.XMIN_AGE_TRANSACTIONS, seen.transactions)


def _add_upkeep(page: Page, seen: Upkeep | None) -> None:
    if seen is not None:
        page.add(names.TABLE_LIVE_TUPLES, seen.live)
        page.add(names.TABLE_DEAD_TUPLES, seen.dead)
        page.add(names.TABLE_LAST_VACUUM, seen.vacuumed_at)
