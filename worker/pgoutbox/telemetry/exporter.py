"""What the table holds, as Prometheus gauges: looked at by the clock, whoever scrapes.

One process per database exports these, so that no sum counts them twice. Nothing old is shown:
while the database cannot be asked there are no gauges, and `outbox_collector_up` is 0. That is also
0 where only the statistics are missing; the horizon, which may be why, is shown all the same.
"""

from __future__ import annotations

import asyncio
import platform
import time
from typing import TYPE_CHECKING, NamedTuple, NoReturn

import psycopg
import structlog
from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.core import GaugeMetricFamily, InfoMetricFamily
from prometheus_client.registry import Collector

from pgoutbox._version import __version__
from pgoutbox.database import horizon, statistics
from pgoutbox.database.conninfo import LOCAL_SETTINGS, DatabaseOptions, conninfo, local_settings
from pgoutbox.events import DatabaseFailed
from pgoutbox.telemetry.quiet import clean
from pgoutbox.telemetry.tally import MAX_DESTINATIONS, OTHER

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from prometheus_client.metrics_core import Metric

    from pgoutbox.database.horizon import Horizon
    from pgoutbox.database.statistics import DestinationStatistics, Statistics, WorkerStatistics

DEFAULT_INTERVAL = 10.0
STATEMENT_SECONDS = 2.0
LOOK_SECONDS = 8.0
"""How long one look may take in all: a try at each of two hosts, and three statements."""
SILENT_AFTER = 15.0
"""Seconds after its last heartbeat from which a worker counts as silent."""

STATES = {"ready": "ready", "waiting": "waiting", "scheduled": "scheduled", "leased": "processing"}
COUNTS = {
    "outbox_dead_letter_messages": ("dead", "Dead messages"),
    "outbox_expired_leases": ("expired", "Messages whose lease ran out and was not taken over"),
    "outbox_blocked_lanes": ("blocked_lanes", "Lanes that a dead message blocks"),
}
AGES = {
    "outbox_oldest_pending_age_seconds": (
        "oldest_pending_age",
        "Since when the oldest undelivered message is owed",
    ),
    "outbox_oldest_ready_age_seconds": (
        "oldest_ready_age",
        "Since when the oldest message that can be claimed is due",
    ),
    "outbox_oldest_blocked_age_seconds": (
        "oldest_blocked_age",
        "Since when the oldest dead message blocks its lane",
    ),
}


class Look(NamedTuple):
    """What one look at a database found."""

    statistics: Statistics | None
    """None where they failed."""
    horizon: Horizon | None
    """None where this role may not ask."""
    failure: psycopg.Error | None = None
    """Why there are no statistics."""


class Source:
    """One database: how to look at it, and what the last look found."""

    def __init__(
        self,
        options: DatabaseOptions,
        *,
        interval: float = DEFAULT_INTERVAL,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """``interval``: seconds from the begin of one look to that of the next."""
        self._options = options
        self._interval = interval
        self._clock = clock
        self._log = structlog.get_logger()
        self._look: Look | None = None
        self._looked_at = clock()
        self._failed_at: float | None = None
        self._said = ""
        self.duration: float | None = None
        """Seconds that the last look took, whether or not it failed. None before the first."""

    @property
    def look(self) -> Look | None:
        """What the last look found; None if it failed, or if it was too long ago."""
        age = self._clock() - self._looked_at
        return self._look if age <= 2 * self._interval + LOOK_SECONDS else None

    async def watch(self) -> NoReturn:
        """Look, once per interval. Raises nothing that another try may cure."""
        while True:
            began = self._clock()
            await self.refresh()
            await asyncio.sleep(max(began + self._interval - self._clock(), 0.0))

    async def refresh(self) -> None:
        """Look once."""
        began = self._clock()
        try:
            async with asyncio.timeout(LOOK_SECONDS):
                self._look = await _look(self._options)
        except (psycopg.Error, OSError, ValueError) as error:
            self._look = None
            self._tell_failure(error)
        else:
            if self._look.failure is None:
                self._tell_success()
            else:
                self._tell_failure(self._look.failure)
        self._looked_at = self._clock()
        self.duration = self._looked_at - began

    def _tell_failure(self, error: BaseException) -> None:
        if self._failed_at is None:
            self._failed_at = self._clock()
        failed = DatabaseFailed.because("look", error)
        said = clean(failed.error or type(error).__name__)
        if said != self._said:
            self._said = said
            self._log.warning("database failed", doing=failed.doing, error=said)

    def _tell_success(self) -> None:
        if self._failed_at is not None:
            seconds = round(self._clock() - self._failed_at, 1)
            self._log.info("database recovered", seconds=seconds)
        self._failed_at, self._said = None, ""


async def _look(options: DatabaseOptions) -> Look:
    """Over a connection of its own, so that a new password or primary is taken up.

    The horizon first: it costs next to nothing, and a held one makes the statistics slow, until
    they are not finished in time.
    """
    address = conninfo(options, session_settings=False)
    async with (
        await psycopg.AsyncConnection.connect(
            address, autocommit=True, prepare_threshold=None
        ) as conn,
        conn.transaction(),
    ):
        await conn.execute(LOCAL_SETTINGS, local_settings(options))
        held = await horizon.read_async(conn, schema=options.schema)
        try:
            async with conn.transaction():
                return Look(await statistics.read_async(conn, schema=options.schema), held)
        except psycopg.Error as error:
            if conn.broken:
                raise
            return Look(None, held, error)


class Exporter(Collector):
    """Collector of ``registry``: the gauges of its sources."""

    def __init__(
        self, sources: Sequence[Source], *, registry: CollectorRegistry | None = None
    ) -> None:
        self.registry = registry or CollectorRegistry()
        self._sources = sources
        self.registry.register(self)
        ProcessCollector(registry=self.registry)

    def collect(self) -> Iterator[Metric]:
        """What is exported. Asks nobody."""
        page = Page()
        for source in self._sources:
            look = source.look
            counted = None if look is None else look.statistics
            page.add("outbox_collector_up", "1 if the last look succeeded", counted is not None)
            if source.duration is not None:
                page.add(
                    "outbox_collector_duration_seconds",
                    "How long the last look took",
                    source.duration,
                )
            if counted is not None:
                _add_destinations(page, counted)
                _add_workers(page, counted.workers)
            if look is not None:
                _add_horizon(page, look.horizon)
        yield from page.families.values()
        about = {"version": __version__, "python": platform.python_version()}
        yield InfoMetricFamily("outbox_build", "The version that runs", value=about)


class Page:
    """Families by name, each of them once whatever adds to it."""

    def __init__(self) -> None:
        self.families: dict[str, GaugeMetricFamily] = {}

    def add(self, name: str, what: str, value: float, **labels: str) -> None:
        """One sample."""
        family = self.families.get(name)
        if family is None:
            family = self.families[name] = GaugeMetricFamily(name, what, labels=list(labels))
        family.add_metric(list(labels.values()), float(value))


def _add_destinations(page: Page, found: Statistics) -> None:
    for name, counts in folded(found.destinations).items():
        for state, field in STATES.items():
            page.add(
                "outbox_pending_messages",
                "Undelivered messages; a count of 10000 means at least",
                getattr(counts, field),
                destination=name,
                state=state,
            )
        for metric, (field, what) in (COUNTS | AGES).items():
            page.add(metric, what, getattr(counts, field), destination=name)
        if counts.undelivered:
            page.add(
                "outbox_oldest_pending_timestamp_seconds",
                "The time since which the oldest undelivered message is owed",
                found.at - counts.oldest_pending_age,
                destination=name,
            )


def _add_workers(page: Page, workers: Sequence[WorkerStatistics]) -> None:
    states = ["silent" if each.seen_age > SILENT_AFTER else each.state for each in workers]
    for state in ("running", "draining", "silent"):
        page.add("outbox_workers", "Workers", states.count(state), state=state)


def _add_horizon(page: Page, seen: Horizon | None) -> None:
    if seen is None:
        return
    page.add(
        "outbox_xmin_age_transactions",
        "How many transactions back vacuum can remove nothing",
        seen.transactions,
    )
    if seen.seconds is not None:
        page.add(
            "outbox_xmin_age_seconds",
            "For how long vacuum has been held back, at most",
            seen.seconds,
        )


def folded(
    destinations: Mapping[str, DestinationStatistics], *, limit: int = MAX_DESTINATIONS
) -> dict[str, DestinationStatistics]:
    """At most ``limit`` destinations by name, and the sum of the others as one more."""
    names = sorted(destinations)
    kept = {name: destinations[name] for name in names[:limit]}
    if others := [destinations[name] for name in names[limit:]]:
        kept[OTHER] = _together(others)
    return kept


def _together(counts: Sequence[DestinationStatistics]) -> DestinationStatistics:
    ages = {field for field, _ in AGES.values()}
    fields = statistics.DestinationStatistics.__slots__
    return statistics.DestinationStatistics(
        **{
            field: (max if field in ages else sum)(getattr(each, field) for each in counts)
            for field in fields
        }
    )
