"""The definition, as a real API server takes it and refuses by it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from pgoutbox_operator.bodies import spec_of
from pgoutbox_operator.crd import rules
from pgoutbox_operator.crd.definition import definition
from tests.support.api_server import API, DEFINITION, Refused, Shop
from tests.support.scaler_cases import ACCEPTED, REFUSED, Spec, spec

if TYPE_CHECKING:
    from tests.support.api_server import ApiServer, Object


def body(given: Spec) -> Object:
    return {
        "apiVersion": API,
        "kind": "OutboxScaler",
        "metadata": {"name": "one"},
        "spec": given,
    }


async def test_what_it_allows_is_accepted_and_read_by_the_operator(bare: Shop) -> None:
    for name, given in ACCEPTED.items():
        stored = await bare.api.create(bare.scalers, body(given), dryRun="All")
        assert spec_of(stored) is not None, name


@pytest.mark.parametrize("case", REFUSED)
async def test_what_it_forbids_is_refused_with_the_reason(bare: Shop, case: str) -> None:
    given, said, field = REFUSED[case]
    with pytest.raises(Refused) as refused:
        await bare.api.create(bare.scalers, body(given), dryRun="All", fieldValidation="Strict")
    assert refused.value.status == 422
    assert said in refused.value.message
    assert field in refused.value.message


async def test_a_field_that_it_does_not_know_is_refused_by_strict_validation(bare: Shop) -> None:
    given = body(spec() | {"maximumReplicas": 3})
    with pytest.raises(Refused, match="maximumReplicas"):
        await bare.api.create(bare.scalers, given, dryRun="All", fieldValidation="Strict")


async def test_the_target_of_a_scaler_stays(bare: Shop) -> None:
    await bare.add_scaler()
    change = {"spec": {"scaleTargetRef": {"name": "others"}}}
    with pytest.raises(Refused) as refused:
        await bare.api.merge(bare.scaler(), change)
    assert rules.TARGET_STAYS.message in refused.value.message


async def test_the_api_server_fills_in_the_defaults_of_the_model(bare: Shop) -> None:
    stored = await bare.add_scaler()
    read, bare_read = spec_of(stored), spec_of(body(spec()))
    assert read == bare_read
    assert stored["spec"]["scaleUp"] == {"maxPercent": 100, "maxPods": 4, "periodSeconds": 15}


async def test_the_status_is_written_apart_from_the_spec(bare: Shop) -> None:
    await bare.add_scaler()
    both = {"spec": {"maxReplicas": 77}, "status": {"desiredReplicas": 5}}
    await bare.api.merge(f"{bare.scaler()}/status", both)
    await bare.api.merge(bare.scaler(), {"status": {"desiredReplicas": 6}})
    found = await bare.api.get(bare.scaler())
    assert (found["spec"]["maxReplicas"], found["status"]["desiredReplicas"]) == (10, 5)


async def test_people_see_the_numbers_in_columns(bare: Shop) -> None:
    await bare.add_scaler()
    columns, rows = await bare.api.columns(bare.scalers)
    wanted = [
        "Name",
        "Target",
        "Min",
        "Max",
        "Replicas",
        "Desired",
        "Pending",
        "Oldest(s)",
        "Limited",
    ]
    assert columns[: len(wanted)] == wanted
    assert rows[0][:4] == ["orders", "workers", 1, 10]


async def test_to_apply_it_again_changes_nothing(api: ApiServer) -> None:
    before = await api.get(DEFINITION)
    after = await api.apply(DEFINITION, definition(), manager="pgoutbox-tests", force="true")
    assert after["metadata"]["resourceVersion"] == before["metadata"]["resourceVersion"]
