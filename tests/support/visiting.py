"""One reconciler, its API server, and an outbox of which nothing is asked but what is said here."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import kmock
from prometheus_client import CollectorRegistry, generate_latest

from pgoutbox.database.statistics import DestinationStatistics, Statistics, WorkerStatistics
from pgoutbox.telemetry.exporter_source import Look
from pgoutbox_operator.cluster import Cluster
from pgoutbox_operator.crd import ConditionReason
from pgoutbox_operator.metrics import ScalerMetrics
from pgoutbox_operator.notices import Notices
from pgoutbox_operator.permissions import Permissions
from pgoutbox_operator.reconcile import Reconciler
from tests.support.kube import FakeKube, scaler

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from pgoutbox_operator.cluster import Object


def counts(**given: Any) -> DestinationStatistics:
    """Of a destination with nothing but ``given``."""
    fields = dict.fromkeys(DestinationStatistics.__slots__, 0) | given
    return DestinationStatistics(**fields)


def worker(name: str = "a", **given: Any) -> WorkerStatistics:
    """One that has just started and is busy."""
    fields: dict[str, Any] = {
        "owner": f"workers-{name}",
        "incarnation": name,
        "version": "1",
        "state": "running",
        "slots": 10,
        "busy": 10,
        "counters": {},
        "destinations": {"default": {"breaker": "closed", "stopped": False}},
        "started_at": "2026-01-01T00:00:00+00:00",
        "seen_age": 1.0,
    }
    return WorkerStatistics(**fields | given)


class FakeOutbox:
    """What a `Database` would know."""

    def __init__(self) -> None:
        self.misses = 0
        self.looks = 1
        self.age = 0.5
        self.at = 1_767_225_700.0
        self.destinations: dict[str, DestinationStatistics] = {}
        self.workers: tuple[WorkerStatistics, ...] = ()
        self.reason = ConditionReason.DATABASE_UNREACHABLE

    @property
    def look(self) -> Look | None:
        if self.misses:
            return None
        found = Statistics(
            at=self.at, cap=10_000, destinations=self.destinations, workers=self.workers
        )
        return Look(found, None)

    def why_unknown(self) -> tuple[ConditionReason, str]:
        return self.reason, "nobody answers"

    def has_backlog(self, ready: int = 5000, *, rate: int = 50) -> None:
        """So many are ready, and workers did ``rate`` a second since their start."""
        self.destinations = {"default": counts(ready=ready, oldest_ready_age=20.0)}
        done = {"published": rate * 99, "busy_seconds": 99.0}
        self.workers = tuple(worker(name, counters=done) for name in "ab")


class Switch:
    """A gate that a test opens and shuts."""

    held = True


class Visits:
    """What a test drives: `visit` is a tick."""

    def __init__(self, kube: FakeKube, body: Object) -> None:
        self.kube = kube
        self.time = 1000.0
        self.gate = Switch()
        self.permissions = Permissions()
        self.link = kube.link(self.permissions)
        self.cluster = Cluster(self.link)
        self.notices = Notices(self.cluster, instance="test")
        self.outbox = FakeOutbox()
        self.known: list[Object] = []
        self.reconciler = Reconciler(body, self, now=lambda: self.time)

    def others(self, body: Object) -> list[Object]:
        del body
        return self.known

    async def visit(self, *, after: float = 15.0) -> None:
        self.time += after
        self.outbox.at += after
        await self.reconciler.visit(self.outbox)

    @property
    def reconcilers(self) -> list[Reconciler]:
        """As a supervisor's."""
        return [self.reconciler]

    def metrics(self) -> str:
        """What a scrape would find."""
        registry = CollectorRegistry()
        registry.register(ScalerMetrics(self))
        return generate_latest(registry).decode()

    def restart(self) -> None:
        """A new process: nothing is remembered but what the cluster stores."""
        body = self.reconciler.body | {"status": self.kube.status}
        self.reconciler = Reconciler(body, self, now=lambda: self.time)


@asynccontextmanager
async def visits(body: Object | None = None, **changes: Any) -> AsyncIterator[Visits]:
    """A scaler whose spec has ``changes``."""
    kube = FakeKube()
    async with kube.mock, kmock.Server(kube.mock):
        made = Visits(kube, body or scaler(**changes))
        try:
            yield made
        finally:
            await made.link.close()
