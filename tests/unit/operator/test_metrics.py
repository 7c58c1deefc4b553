"""What the operator exports of its scalers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, generate_latest

from pgoutbox_operator.metrics import ScalerMetrics
from pgoutbox_operator.permissions import Access
from tests.support.known_series import SCALER
from tests.support.visiting import Visits, visits

if TYPE_CHECKING:
    from pgoutbox_operator.permissions import Permissions
    from pgoutbox_operator.reconcile import Reconciler

OF = 'name="orders",namespace="shop"'


class Supervised:
    """As much of a supervisor as is asked."""

    def __init__(self, v: Visits) -> None:
        self.reconcilers: list[Reconciler] = [v.reconciler]
        self.permissions: Permissions = v.permissions


def page(v: Visits) -> str:
    registry = CollectorRegistry()
    registry.register(ScalerMetrics(Supervised(v)))
    return generate_latest(registry).decode()


async def test_a_scaler_is_shown_by_the_names_that_the_alerts_ask_for() -> None:
    async with visits(seedRatePerReplica="50") as v:
        v.outbox.has_backlog()
        await v.visit()
        shown = page(v)
        for name, labels in SCALER.items():
            line = next(line for line in shown.splitlines() if line.startswith(f"{name}{{"))
            assert all(f'{label}="' in line for label in {"namespace", *labels}), line
        assert f"outbox_scaler_current_replicas{{{OF}}} 7.0" in shown
        assert f"outbox_scaler_max_replicas{{{OF}}} 10.0" in shown
        assert f'outbox_scaler_limited{{{OF},reason="DownstreamLimited"}} 0.0' in shown
        up = 'direction="up",name="orders",namespace="shop"'
        assert f"outbox_scaler_scale_actions_total{{{up}}} 1.0" in shown


async def test_a_failed_status_write_makes_a_scaler_stale() -> None:
    async with visits() as v:
        v.kube.mock["patch"] << 500
        await v.visit()
        assert "outbox_scaler_last_reconcile_timestamp_seconds{" not in page(v)


async def test_who_does_not_lead_shows_no_scaler() -> None:
    async with visits() as v:
        await v.visit()
        v.gate.held = False
        await v.visit()
        assert "outbox_scaler_current_replicas{" not in page(v)


async def test_refusals_are_counted() -> None:
    async with visits() as v:
        v.permissions.told(Access("list", "pods", "shop"), allowed=False)
        counted = 'outbox_operator_permission_errors_total{resource="pods",verb="list"} 1.0'
        assert counted in page(v)
