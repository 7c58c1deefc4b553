"""What the operator exports of its scalers."""

from __future__ import annotations

import re
from typing import get_args

from pgoutbox.telemetry.catalogue import OPERATOR, operator as names
from pgoutbox_operator import rights
from pgoutbox_operator.crd import Condition, ConditionType
from pgoutbox_operator.permissions import Access
from pgoutbox_operator.scaling import Limit
from tests.support.kube import SCALE
from tests.support.visiting import visits

OF = 'name="orders",namespace="shop"'


async def test_a_scaler_is_shown_by_the_names_that_the_alerts_ask_for() -> None:
    async with visits(seedRatePerReplica="50") as v:
        v.outbox.has_backlog()
        await v.visit()
        shown = v.metrics()
        for metric in OPERATOR:
            line = next(line for line in shown.splitlines() if line.startswith(f"{metric.name}{{"))
            assert all(f'{label}="' in line for label in metric.labels), line
        assert f"outbox_scaler_current_replicas{{{OF}}} 7.0" in shown
        assert f"outbox_scaler_max_replicas{{{OF}}} 10.0" in shown
        assert f"outbox_scaler_oldest_ready_age_seconds{{{OF}}} 20.0" in shown
        assert f'outbox_scaler_limited{{{OF},reason="DownstreamLimited"}} 0.0' in shown
        up = 'direction="up",name="orders",namespace="shop"'
        assert f"outbox_scaler_scale_actions_total{{{up}}} 1.0" in shown


def test_words_that_the_catalogue_lists_are_those_of_the_operator() -> None:
    assert list(names.LIMITED.values["reason"]) == list(Limit)
    assert list(names.CONDITION.values["type"]) == list(ConditionType)
    statuses = Condition.model_fields["status"].annotation
    assert names.CONDITION.values["status"] == get_args(statuses)


async def test_each_condition_has_one_status_and_shows_the_others_at_0() -> None:
    async with visits() as v:
        v.kube.mock[f"get {SCALE}"] << 404
        await v.visit()
        shown = v.metrics()
        for kind, (status, _) in v.kube.conditions.items():
            for each in ("True", "False", "Unknown"):
                sample = f'outbox_scaler_condition{{{OF},status="{each}",type="{kind}"}}'
                assert f"{sample} {float(each == status)}" in shown
        assert f'outbox_scaler_condition{{{OF},status="False",type="Ready"}} 1.0' in shown


async def test_conditions_that_cannot_be_written_are_shown_all_the_same() -> None:
    async with visits() as v:
        v.kube.mock["patch"] << 403
        await v.visit()
        await v.visit()
        assert not v.kube.conditions
        assert f'outbox_scaler_condition{{{OF},status="False",type="Permitted"}} 1.0' in v.metrics()


async def test_a_failed_status_write_makes_a_scaler_stale() -> None:
    async with visits() as v:
        v.kube.mock["patch"] << 500
        await v.visit()
        assert "outbox_scaler_last_reconcile_timestamp_seconds{" not in v.metrics()


async def test_who_leads_no_more_shows_no_scaler_from_that_moment_on() -> None:
    async with visits() as v:
        await v.visit()
        v.gate.held = False
        assert "outbox_scaler_" not in re.sub(r"^#.*$", "", v.metrics(), flags=re.MULTILINE)


async def test_every_right_is_shown_as_not_refused_before_it_is() -> None:
    async with visits() as v:
        counted = {
            f'outbox_operator_permission_errors_total{{resource="{right.resource}",verb="{verb}"}}'
            for right in (*rights.SCALERS, *rights.LEASES)
            for verb in right.verbs
        }
        assert {f"{each} 0.0" for each in counted} <= set(v.metrics().splitlines())


async def test_refusals_are_counted() -> None:
    async with visits() as v:
        v.permissions.told(Access("list", "pods", "shop"), allowed=False)
        counted = 'outbox_operator_permission_errors_total{resource="pods",verb="list"} 1.0'
        assert counted in v.metrics()
