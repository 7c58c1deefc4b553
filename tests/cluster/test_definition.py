"""The definition, as a real API server takes it and refuses by it."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING

import pytest

from pgoutbox_operator.bodies import spec_of
from pgoutbox_operator.crd import ScalerSpec, rules
from pgoutbox_operator.crd.definition import definition
from tests.support.api_server import API, DEFINITION, MANAGER, Refused, Shop, is_established
from tests.support.scaler_cases import ACCEPTED, REFUSED, Spec, spec

if TYPE_CHECKING:
    from collections.abc import Iterator

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
        stored = await bare.api.create(
            bare.scalers, body(given), dryRun="All", fieldValidation="Strict"
        )
        assert spec_of(stored) == spec_of(body(given)), name


@pytest.mark.parametrize("case", REFUSED)
async def test_what_it_forbids_is_refused_with_the_reason(bare: Shop, case: str) -> None:
    given, said, field = REFUSED[case]
    with pytest.raises(Refused) as refused:
        await bare.api.create(bare.scalers, body(given), dryRun="All", fieldValidation="Strict")
    assert refused.value.status == 422
    assert said in refused.value.message
    assert (f"spec.{field}" if field else "") in refused.value.message


def beyond(schema: Object, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], object]]:
    """Each field with a limit, and what is just outside of it."""
    for name, each in schema.get("properties", {}).items():
        here = (*path, name)
        yield from beyond(each, here)
        if "minimum" in each:
            yield here, each["minimum"] - 1
        if "maximum" in each:
            yield here, each["maximum"] + 1
        if "minLength" in each:
            yield here, "a" * (each["minLength"] - 1)
        if "maxLength" in each:
            yield here, "a" * (each["maxLength"] + 1)
        if "maxItems" in each:
            yield here, [f"a{i}" for i in range(each["maxItems"] + 1)]
        if "enum" in each:
            yield here, "Other"


async def test_what_is_just_outside_of_a_limit_is_refused(bare: Shop) -> None:
    [version] = definition()["spec"]["versions"]
    cases = list(beyond(version["schema"]["openAPIV3Schema"]["properties"]["spec"]))
    assert len(cases) > 50
    for (*parents, name), value in cases:
        given = spec()
        part = given
        for parent in parents:
            part = part.setdefault(parent, {})
        part[name] = value
        with pytest.raises(Refused) as refused:
            await bare.api.create(bare.scalers, body(given), dryRun="All")
        assert refused.value.status == 422
        assert ".".join(["spec", *parents, name]) in refused.value.message, value


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
    model = ScalerSpec.model_validate(spec())
    assert stored["spec"] == model.model_dump(by_alias=True, mode="json", exclude_none=True)
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
    after = await api.apply(DEFINITION, definition(), manager=MANAGER, force="true")
    assert after["metadata"]["resourceVersion"] == before["metadata"]["resourceVersion"]


async def test_a_cluster_that_never_saw_it_serves_it_under_its_short_name_until_it_is_deleted(
    api: ApiServer,
) -> None:
    body, group = definition(), f"{uuid.uuid4().hex}.pgoutbox.test"
    name = f"{body['spec']['names']['plural']}.{group}"
    body["metadata"]["name"], body["spec"]["group"] = name, group
    path = f"{DEFINITION.rpartition('/')[0]}/{name}"
    await api.apply(path, body, manager=MANAGER)
    try:
        await api.until(path, is_established)
        served = await api.until(f"/apis/{group}/v1alpha1", lambda found: found["resources"])
        [scalers, status] = sorted(served["resources"], key=lambda each: len(each["name"]))
        assert (scalers["shortNames"], scalers["categories"]) == (["oxs"], ["outbox"])
        assert status["name"] == f"{scalers['name']}/status"
        body["spec"]["names"]["shortNames"] = ["others"]
        with pytest.raises(Refused, match=MANAGER) as refused:
            await api.apply(path, body, manager="somebody-else")
        assert refused.value.status == 409
    finally:
        await api.delete(path)
    await api.until_gone(path, within=10)
