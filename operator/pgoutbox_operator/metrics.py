"""What the operator exports of its scalers. The outbox itself: `pgoutbox.telemetry.exporter`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, TypeAlias

from prometheus_client.registry import Collector

from pgoutbox.telemetry.catalogue import operator as names
from pgoutbox_operator import rights

if TYPE_CHECKING:
    from collections.abc import Iterator

    from prometheus_client.metrics_core import Metric as Family

    from pgoutbox.telemetry.catalogue.metric import Metric, Values
    from pgoutbox_operator.gate import Gate
    from pgoutbox_operator.permissions import Permissions
    from pgoutbox_operator.reconcile import Reconciler

NEVER: dict[Values, float] = {
    (verb, right.resource): 0 for right in (*rights.SCALERS, *rights.LEASES) for verb in right.verbs
}
"""Refusals, before any. A counter that is born at 1 is one that never rose."""

Sample: TypeAlias = "tuple[Metric, float | None, Values]"
"""Of a scaler, with the labels that are not the scaler's own."""


class Supervised(Protocol):
    """Whose scalers these are."""

    @property
    def reconcilers(self) -> list[Reconciler]:
        """Of all objects."""

    @property
    def gate(self) -> Gate:
        """Whether it is for this process to show them."""

    @property
    def permissions(self) -> Permissions:
        """What was refused."""


class ScalerMetrics(Collector):
    """Of all objects that this process looks after."""

    def __init__(self, supervisor: Supervised) -> None:
        self._supervisor = supervisor

    def collect(self) -> Iterator[Family]:
        """What is exported. Asks nobody."""
        found: dict[Metric, dict[Values, float]] = {metric: {} for metric in names.OPERATOR}
        # Who leads no more remembers them until the next visit, and another one shows them by now.
        for scaler in self._supervisor.reconcilers if self._supervisor.gate.held else ():
            of = scaler.body["metadata"]
            for metric, value, labels in _samples(scaler):
                if value is not None:
                    found[metric][of["namespace"], of["name"], *labels] = value
        found[names.PERMISSION_ERRORS] = NEVER | self._supervisor.permissions.errors
        for metric, samples in found.items():
            yield metric.counter(samples) if metric.type == "counter" else metric.gauge(samples)


def _samples(scaler: Reconciler) -> Iterator[Sample]:
    """Nothing before the first visit."""
    visit = scaler.last
    if visit is None:
        return
    decision, spec, outbox = visit.decision, visit.spec, visit.outbox
    yield names.CURRENT_REPLICAS, visit.replicas, ()
    yield names.MAX_REPLICAS, None if spec is None else spec.max_replicas, ()
    yield names.OLDEST_READY_AGE, None if outbox is None else outbox.oldest_ready_age, ()
    yield names.RATE_PER_REPLICA, scaler.state.rate, ()
    yield names.LAST_RECONCILE, scaler.reconciled_at, ()
    for direction, count in scaler.actions.items():
        yield names.SCALE_ACTIONS, count, (direction,)
    for condition in scaler.conditions:
        for status in names.CONDITION.values["status"]:
            yield names.CONDITION, condition.status == status, (condition.type, status)
    if decision is not None:
        yield names.DESIRED_REPLICAS, decision.replicas, ()
        for limit in names.LIMITED.values["reason"]:
            yield names.LIMITED, decision.limited_by == limit, (limit,)
