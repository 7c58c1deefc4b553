"""Events into Prometheus metrics; which ones there are says `pgoutbox.telemetry.catalogue.worker`.

A worker exports what it did itself. What the table holds (backlog, ages, dead letters) comes from
one place per database, so that no sum counts it twice.
"""

from __future__ import annotations

import platform
import time
from typing import TYPE_CHECKING, assert_never

from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.registry import Collector

from pgoutbox import events
from pgoutbox._version import __version__
from pgoutbox.telemetry.catalogue import worker as names
from pgoutbox.telemetry.tally import (
    DRAIN_SECONDS,
    EXPIRED,
    OUTCOMES,
    STATEMENT_SECONDS,
    Distribution,
    WorkerTally,
)
from pgoutbox.telemetry.tracing.counts import SpanCounts

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from prometheus_client.metrics_core import Metric as Family

    from pgoutbox.events import Event
    from pgoutbox.telemetry.catalogue.metric import Values


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
        self._tally = WorkerTally(destinations, slots=slots)
        self._claim_seconds = Distribution(STATEMENT_SECONDS)
        self._finalize_seconds = Distribution(STATEMENT_SECONDS)
        self._drain_seconds = Distribution(DRAIN_SECONDS)
        self._busy: Callable[[], int] = int
        self._pool_stats: Callable[[], Mapping[str, int]] = dict
        self._spans = SpanCounts()
        self.registry.register(self)
        ProcessCollector(registry=self.registry)

    def watch_slots(self, busy: Callable[[], int]) -> None:
        """``busy`` is asked at each scrape how many slots are in use."""
        self._busy = busy

    def watch_pool(self, get_stats: Callable[[], Mapping[str, int]]) -> None:
        """``get_stats`` is that of a psycopg pool, asked at each scrape."""
        self._pool_stats = get_stats

    def watch_spans(self, counts: SpanCounts) -> None:
        """``counts`` is read at each scrape."""
        self._spans = counts

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
                tally.breaker(event.destination, is_open=event.state == "open")
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

    def collect(self) -> Iterator[Family]:
        """What is exported."""
        yield from self._counters()
        yield from self._histograms()
        yield from self._gauges()
        yield names.BUILD.info({"version": __version__, "python": platform.python_version()})

    def _counters(self) -> Iterator[Family]:
        each = self._tally.destinations.items()
        attempts: dict[Values, float] = {
            (name, label): tally.attempts[kind]
            for name, tally in each
            for kind, label in OUTCOMES.items()
        }
        dead: dict[Values, float] = {
            (name, reason): count for name, tally in each for reason, count in tally.dead.items()
        }
        yield names.MESSAGES_CLAIMED.counter({(name,): tally.claimed for name, tally in each})
        yield names.PUBLISH_ATTEMPTS.counter(attempts)
        yield names.MESSAGES_PUBLISHED.counter({(name,): tally.published for name, tally in each})
        yield names.MESSAGES_DEAD_LETTERED.counter(dead)
        yield names.PUBLISHER_FAILURES.counter({(name,): tally.crashes for name, tally in each})
        yield names.FINALIZE_REFUSED.counter({(name,): tally.refused for name, tally in each})
        yield names.LEASES_LOST.counter({(): self._tally.leases_lost})
        yield names.LEASES_RECLAIMED.counter({(): self._tally.leases_reclaimed})
        yield names.LEASES_RELEASED.counter(
            {(reason,): count for reason, count in self._tally.released.items()}
        )
        yield names.POOL_ERRORS.counter({(): self._pool_stats().get("requests_errors", 0)})
        yield names.SPANS_EXPORTED.counter({(): self._spans.exported})
        yield names.SPANS_DROPPED.counter(
            {(reason,): count for reason, count in self._spans.dropped.items()}
        )

    def _histograms(self) -> Iterator[Family]:
        each = self._tally.destinations.items()
        yield names.PUBLISH_DURATION.histogram({(name,): tally.seconds for name, tally in each})
        yield names.DELIVERY_LATENCY.histogram({(name,): tally.latency for name, tally in each})
        for metric, seconds in (
            (names.CLAIM_DURATION, self._claim_seconds),
            (names.FINALIZE_DURATION, self._finalize_seconds),
            (names.DRAIN_DURATION, self._drain_seconds),
        ):
            yield metric.histogram({(): seconds})

    def _gauges(self) -> Iterator[Family]:
        each = self._tally.destinations.items()
        yield names.WORKER_SLOTS.gauge({(): self._slots})
        yield names.WORKER_BUSY_SLOTS.gauge({(): self._busy()})
        yield names.WORKER_DRAINING.gauge({(): self._tally.draining})
        yield names.BREAKER_OPEN.gauge({(name,): bool(tally.open) for name, tally in each})
        stats = self._pool_stats()
        idle = stats.get("pool_available", 0)
        used = stats.get("pool_size", 0) - idle
        yield names.POOL_CONNECTIONS.gauge({("idle",): idle, ("used",): used})
        yield names.POOL_REQUESTS_WAITING.gauge({(): stats.get("requests_waiting", 0)})
