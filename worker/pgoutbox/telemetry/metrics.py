"""Events into Prometheus metrics. Every name that a worker exports stands in this file.

A worker exports what it did itself. What the table holds (backlog, ages, dead letters) comes from
one place per database, so that no sum counts it twice.
"""

from __future__ import annotations

import platform
import time
from typing import TYPE_CHECKING, assert_never

from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    InfoMetricFamily,
)
from prometheus_client.registry import Collector

from pgoutbox import events
from pgoutbox._version import __version__
from pgoutbox.telemetry.tally import (
    DRAIN_SECONDS,
    EXPIRED,
    OUTCOMES,
    STATEMENT_SECONDS,
    Distribution,
    WorkerTally,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from prometheus_client.metrics_core import Metric

    from pgoutbox.events import Event


class Metrics(Collector):
    """Observer of events and collector of ``registry``, all on the event loop.

    Every series of a known destination exists from the start, at 0: a counter that is born at 1
    looks to Prometheus as if it had never risen.
    """

    def __init__(
        self,
        *,
        destinations: Sequence[str],
        slots: int,
        registry: CollectorRegistry | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """``slots``: messages that may be held at once. ``clock``: that of `Settled.started`."""
        self.registry = registry or CollectorRegistry()
        self._slots = slots
        self._clock = clock
        self._tally = WorkerTally(destinations)
        self._claim_seconds = Distribution(STATEMENT_SECONDS)
        self._finalize_seconds = Distribution(STATEMENT_SECONDS)
        self._drain_seconds = Distribution(DRAIN_SECONDS)
        self._busy: Callable[[], int] = int
        self._pool_stats: Callable[[], Mapping[str, int]] | None = None
        self.registry.register(self)
        ProcessCollector(registry=self.registry)

    def watch_slots(self, busy: Callable[[], int]) -> None:
        """``busy`` is asked at each scrape how many slots are in use."""
        self._busy = busy

    def watch_pool(self, get_stats: Callable[[], Mapping[str, int]]) -> None:
        """``get_stats`` is that of a psycopg pool, asked at each scrape."""
        self._pool_stats = get_stats

    def on_event(self, event: Event) -> None:  # noqa: C901 - one case per event
        """Take note of the event."""
        tally = self._tally
        match event:
            case events.Finalized():
                self._finalize_seconds.add([event.seconds])
                tally.finalized(event)
            case events.Claimed():
                self._claim_seconds.add([event.seconds])
                tally.claimed(event, now=self._clock())
            case events.LeaseLost():
                tally.leases_lost += len(event.messages)
                tally.cancelled(event.messages)
            case events.PublisherFailed():
                tally.crashed(event.message)
            case events.Reaped():
                for destination, count in event.destination_counts.items():
                    tally.of(destination).dead[EXPIRED] += count
            case events.BreakerChanged():
                tally.of(event.destination).open = event.state == "open"
            case events.DrainStarted():
                tally.draining = True
            case events.DrainEnded():
                self._drain_seconds.add([event.seconds])
            case (
                events.WorkerStarted()
                | events.WakeupModeChanged()
                | events.Renewed()
                | events.LeaseUnconfirmed()
                | events.Pruned()
                | events.DatabaseFailed()
                | events.DatabaseRecovered()
                | events.DestinationStopped()
            ):
                pass
            case _:
                assert_never(event)

    def collect(self) -> Iterator[Metric]:
        """What is exported."""
        yield from self._counters()
        yield from self._histograms()
        yield from self._gauges()
        about = {"version": __version__, "python": platform.python_version()}
        yield InfoMetricFamily("outbox_build", "The version that runs", value=about)

    def _counters(self) -> Iterator[Metric]:
        each = self._tally.destinations.items()
        yield _counter(
            "outbox_messages_claimed",
            "Messages that this worker claimed",
            ("destination",),
            {(name,): tally.claimed for name, tally in each},
        )
        yield _counter(
            "outbox_publish_attempts",
            "Publishes that ended, by what was observed",
            ("destination", "outcome"),
            {
                (name, label): tally.attempts[kind]
                for name, tally in each
                for kind, label in OUTCOMES.items()
            },
        )
        yield _counter(
            "outbox_messages_published",
            "Messages that were published and recorded as done",
            ("destination",),
            {(name,): tally.published for name, tally in each},
        )
        yield _counter(
            "outbox_messages_dead_lettered",
            "Messages that this worker buried",
            ("destination", "reason"),
            {(name, reason): count for name, tally in each for reason, count in tally.dead.items()},
        )
        yield from self._trouble_counters()
        yield from self._lease_counters()

    def _trouble_counters(self) -> Iterator[Metric]:
        each = self._tally.destinations.items()
        yield _counter(
            "outbox_publisher_failures",
            "Unclassified exceptions of a publisher: bugs",
            ("destination",),
            {(name,): tally.crashes for name, tally in each},
        )
        yield _counter(
            "outbox_finalize_refused",
            "Results that the database would not record: these messages are published again",
            ("destination",),
            {(name,): tally.refused for name, tally in each},
        )

    def _lease_counters(self) -> Iterator[Metric]:
        yield _counter(
            "outbox_leases_lost",
            "Leases that somebody else took over before this worker was done",
            (),
            {(): self._tally.leases_lost},
        )
        yield _counter(
            "outbox_leases_reclaimed",
            "Claims of a message whose lease had expired",
            (),
            {(): self._tally.leases_reclaimed},
        )
        yield _counter(
            "outbox_leases_released",
            "Leases handed back with their attempt refunded",
            ("reason",),
            {(reason,): count for reason, count in self._tally.released.items()},
        )

    def _histograms(self) -> Iterator[Metric]:
        publish = HistogramMetricFamily(
            "outbox_publish_duration_seconds",
            "From call to end of a publish",
            labels=["destination"],
        )
        latency = HistogramMetricFamily(
            "outbox_delivery_latency_seconds",
            "From when a message was owed to the end of the publish that delivered it",
            labels=["destination"],
        )
        for name, tally in self._tally.destinations.items():
            publish.add_metric([name], tally.seconds.buckets(), tally.seconds.total)
            latency.add_metric([name], tally.latency.buckets(), tally.latency.total)
        yield publish
        yield latency
        for title, what, distribution in (
            ("claim", "A claim that brought something", self._claim_seconds),
            ("finalize", "The write of one batch of transitions", self._finalize_seconds),
            ("drain", "From the signal to the end of the drain", self._drain_seconds),
        ):
            yield HistogramMetricFamily(
                f"outbox_{title}_duration_seconds",
                what,
                buckets=distribution.buckets(),
                sum_value=distribution.total,
            )

    def _gauges(self) -> Iterator[Metric]:
        yield _gauge("outbox_worker_slots", "Messages that may be held at once", self._slots)
        yield _gauge("outbox_worker_busy_slots", "Messages that are held now", self._busy())
        yield _gauge("outbox_worker_draining", "1 from the signal to the end", self._tally.draining)
        breakers = GaugeMetricFamily(
            "outbox_breaker_open",
            "1 while the destination fails for all and is only tried now and then",
            labels=["destination"],
        )
        for name, tally in self._tally.destinations.items():
            breakers.add_metric([name], float(tally.open))
        yield breakers
        if self._pool_stats is not None:
            stats = self._pool_stats()
            idle = stats.get("pool_available", 0)
            pool = GaugeMetricFamily(
                "outbox_db_pool_connections", "Connections to the database", labels=["state"]
            )
            pool.add_metric(["idle"], idle)
            pool.add_metric(["used"], stats.get("pool_size", 0) - idle)
            yield pool
            yield _gauge(
                "outbox_db_pool_requests_waiting",
                "Tasks that wait for a connection",
                stats.get("requests_waiting", 0),
            )


def _counter(
    name: str, what: str, labels: Sequence[str], values: Mapping[tuple[str, ...], float]
) -> Metric:
    family = CounterMetricFamily(name, what, labels=labels)
    for key, value in values.items():
        family.add_metric(key, value)
    return family


def _gauge(name: str, what: str, value: float) -> Metric:
    return GaugeMetricFamily(name, what, value=float(value))
