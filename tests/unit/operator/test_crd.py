"""The definition of the custom resource, as far as it can be tried without a cluster."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from pgoutbox_operator.crd import ConditionReason, ConditionType, ScalerSpec
from pgoutbox_operator.crd.__main__ import main
from pgoutbox_operator.crd.definition import COLUMNS, FILE, definition, render
from pgoutbox_operator.crd.rules import RULES, TARGET_STAYS
from pgoutbox_operator.crd.schema import KEPT
from pgoutbox_operator.scaling import Limit
from tests.support.scaler_cases import ACCEPTED, LEAST, REFUSED, Refused, spec
from tests.support.structural import admit, every_node, violations

CRD = definition()
ROOT = CRD["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
SPEC, STATUS = ROOT["properties"]["spec"], ROOT["properties"]["status"]


@pytest.mark.parametrize("given", ACCEPTED.values(), ids=ACCEPTED)
def test_a_sound_spec_is_admitted_and_understood(given: dict[str, Any]) -> None:
    stored, wrong = admit(SPEC, given)
    assert wrong == []
    assert ScalerSpec.model_validate(stored).max_replicas == 10


@pytest.mark.parametrize("case", REFUSED.values(), ids=REFUSED)
def test_a_spec_that_makes_no_sense_is_refused_and_it_is_said_why(case: Refused) -> None:
    _, wrong = admit(SPEC, case.spec)
    if case.of_schema:
        assert [each for each in wrong if each.startswith(f".{case.of_schema}:")] == wrong != []
    else:
        assert case.said in wrong


def test_each_rule_has_a_case_that_only_it_refuses() -> None:
    told = {case.said for case in REFUSED.values()} | {TARGET_STAYS.message}
    assert told - {""} == {rule.message for rule in RULES}
    in_the_schema = [
        rule["message"]
        for _, node in every_node(SPEC)
        for rule in node.get("x-kubernetes-validations", [])
    ]
    assert sorted(in_the_schema) == sorted(rule.message for rule in RULES)


def test_the_target_stays() -> None:
    old, _ = admit(SPEC, LEAST)
    same, wrong = admit(SPEC, spec(maxReplicas=5), old)
    assert (same["maxReplicas"], wrong) == (5, [])
    _, wrong = admit(SPEC, spec(scaleTargetRef={"name": "others"}), old)
    assert wrong == [TARGET_STAYS.message]


def test_what_the_api_server_fills_in_is_what_the_model_takes_for_granted() -> None:
    stored, _ = admit(SPEC, LEAST)
    assert ScalerSpec.model_validate(stored) == ScalerSpec.model_validate(LEAST)
    # An object that is given in part is filled up by the same values.
    in_part, _ = admit(SPEC, spec(objective={}, scaleDown={}, fallback={}, utilization={}))
    assert in_part == stored


def test_a_default_fits_its_own_schema() -> None:
    defaults = [(path, node) for path, node in every_node(ROOT) if "default" in node]
    assert len(defaults) > 20
    for path, node in defaults:
        assert violations(node, node["default"], path) == []


def test_everything_has_bounds() -> None:
    for path, node in every_node(ROOT):
        if path in {".apiVersion", ".kind"}:
            continue
        bounded = {
            "string": {"maxLength", "enum"} & node.keys(),
            "array": {"maxItems"} & node.keys(),
            "integer": {"minimum"} & node.keys(),
        }
        assert bounded.get(node["type"], True), path
    for path, node in every_node(SPEC):
        assert node["type"] != "integer" or "maximum" in node, path


def test_the_schema_is_structural() -> None:
    """No more than what Kubernetes allows: no references, no nulls, no floats, no loose ends."""
    allowed = {*KEPT, "items", "properties", "required"}
    for path, node in every_node(ROOT):
        unknown = {key for key in node if not key.startswith("x-kubernetes-")} - allowed
        assert not unknown, path
        assert node["type"] in {"object", "array", "string", "integer"}, path
        assert node.get("default", 0) is not None, path


def test_each_field_of_the_spec_is_described() -> None:
    plain = {".scaleTargetRef.apiVersion", ".scaleTargetRef.kind"}
    for path, node in every_node(SPEC):
        assert "description" in node or path in plain or path.endswith("[]"), path


def test_each_column_shows_a_field_that_there_is() -> None:
    paths = {path for path, _ in every_node(ROOT)}
    for name, _, path, _ in COLUMNS:
        beginning = path.split("[?")[0]
        assert beginning in paths or beginning.startswith(".metadata."), name


def test_conditions_are_a_map_by_type() -> None:
    conditions = STATUS["properties"]["conditions"]
    assert conditions["x-kubernetes-list-type"] == "map"
    assert conditions["x-kubernetes-list-map-keys"] == ["type"]
    wanted = {"type", "status", "reason", "message", "lastTransitionTime"}
    assert set(conditions["items"]["required"]) == wanted


@pytest.mark.parametrize("word", [*ConditionType, *ConditionReason])
def test_the_schema_takes_each_word_of_a_condition(word: str) -> None:
    item = STATUS["properties"]["conditions"]["items"]["properties"]
    assert violations(item["type"], word) == violations(item["reason"], word) == []


def test_whatever_limits_a_decision_has_a_reason() -> None:
    assert {limit.value for limit in Limit} <= {reason.value for reason in ConditionReason}


def test_the_file_in_the_repository_is_the_one_that_the_model_gives(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["--check"]) == 0, capsys.readouterr().err
    assert yaml.safe_load(FILE.read_text(encoding="utf-8")) == CRD


def test_a_file_that_is_out_of_date_is_noticed_and_written(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["--check"]) == 1
    assert "--write" in capsys.readouterr().err
    assert main(["--write"]) == 0
    assert main(["--check"]) == 0
    assert (tmp_path / FILE).read_text(encoding="utf-8") == render()
