"""What the operator exports of its scalers. The outbox itself: `pgoutbox.telemetry.exporter`."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from pgoutbox_operator.scaling import Limit

if TYPE_CHECKING:
    from collections.abc import Iterator

    from prometheus_client.metrics_core import Metric as Family

    from pgoutbox_operator.permissions import Permissions
    from pgoutbox_operator.reconcile import Reconciler

OBJECT = ("namespace", "name")


class Gauge(NamedTuple):
    """One of them, with the labels of its object."""

    name: str
    help: str

    def family(self, *more: str) -> GaugeMetricFamily:
        """Without samples yet."""
        return GaugeMetricFamily(self.name, self.help, labels=(*OBJECT, *more))


CURRENT = Gauge("outbox_scaler_current_replicas", "Replicas that the target asks for")
DESIRED = Gauge("outbox_scaler_desired_replicas", "Replicas that there shall be")
MAX = Gauge("outbox_scaler_max_replicas", "Most replicas that the spec allows")
LIMITED = Gauge("outbox_scaler_limited", "1 for what keeps the replicas below what is needed")
RATE = Gauge(
    "outbox_scaler_rate_per_replica", "Messages a second of one replica that is fully used"
)
RECONCILED = Gauge(
    "outbox_scaler_last_reconcile_timestamp_seconds", "When the scaler was last looked after"
)
ACTIONS = "outbox_scaler_scale_actions_total"
PERMISSION_ERRORS = "outbox_operator_permission_errors_total"


class Supervised(Protocol):
    """Whose scalers these are."""

    @property
    def reconcilers(self) -> list[Reconciler]:
        """Of all objects."""

    @property
    def permissions(self) -> Permissions:
        """What was refused."""


class ScalerMetrics(Collector):
    """Of all objects that this process looks after."""

    def __init__(self, supervisor: Supervised) -> None:
        self._supervisor = supervisor

    def collect(self) -> Iterator[Family]:
        """What is exported. Asks nobody."""
        led = [each for each in self._supervisor.reconcilers if each.last is not None]
        yield from _gauges(led)
        yield _limits(led)
        actions = CounterMetricFamily(
            ACTIONS, "Changes of the replicas", labels=(*OBJECT, "direction")
        )
        for each in led:
            for direction, count in each.actions.items():
                actions.add_metric((*_labels(each), direction), count)
        yield actions
        errors = CounterMetricFamily(
            PERMISSION_ERRORS, "Requests that the cluster forbade", labels=("verb", "resource")
        )
        for (verb, resource), count in self._supervisor.permissions.errors.items():
            errors.add_metric((verb, resource), count)
        yield errors


def _labels(reconciler: Reconciler) -> tuple[str, str]:
    of = reconciler.body["metadata"]
    return of["namespace"], of["name"]


def _gauges(led: list[Reconciler]) -> Iterator[Family]:
    families = {gauge: gauge.family() for gauge in (CURRENT, DESIRED, MAX, RATE, RECONCILED)}
    for each in led:
        for gauge, value in _values(each).items():
            if value is not None:
                families[gauge].add_metric(_labels(each), value)
    yield from families.values()


def _values(reconciler: Reconciler) -> dict[Gauge, float | None]:
    visit = reconciler.last
    decision = None if visit is None else visit.decision
    spec = None if visit is None else visit.spec
    return {
        CURRENT: None if visit is None else visit.replicas,
        DESIRED: None if decision is None else decision.replicas,
        MAX: None if spec is None else spec.max_replicas,
        RATE: reconciler.state.rate,
        RECONCILED: reconciler.reconciled_at,
    }


def _limits(led: list[Reconciler]) -> Family:
    family = LIMITED.family("reason")
    for each in led:
        decision = None if each.last is None else each.last.decision
        for limit in Limit if decision is not None else ():
            by = decision is not None and decision.limited_by == limit
            family.add_metric((*_labels(each), limit.value), float(by))
    return family
