"""docs/operator.md says what the operator does."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

from pgoutbox_operator.bodies import spec_of
from pgoutbox_operator.cli import group, run
from pgoutbox_operator.crd import ConditionReason, ConditionType, ScalerSpec
from pgoutbox_operator.crd.definition import definition
from pgoutbox_operator.explain import REASONS

PAGE = (Path(__file__).parents[3] / "docs" / "operator.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)


def manifest(kind: str) -> dict[str, Any]:
    [found] = [
        each
        for block in blocks("yaml")
        for each in yaml.safe_load_all(block)
        if each["kind"] == kind
    ]
    return dict(found)


def test_the_role_is_what_the_command_prints() -> None:
    told = "rbac --namespace shop --service-account pgoutbox/pgoutbox-operator"
    assert told in PAGE
    printed = CliRunner().invoke(group, told.split()).output
    assert printed in blocks("yaml")


def test_the_scaler_is_one() -> None:
    spec = spec_of(manifest("OutboxScaler"))
    assert spec is not None
    assert spec.max_replicas == 20


def test_every_field_of_the_spec_is_explained() -> None:
    table = PAGE[PAGE.index("| field |") : PAGE.index("## What it says")]
    missing = [
        field.alias or name
        for name, field in ScalerSpec.model_fields.items()
        if f"`{field.alias or name}" not in table
    ]
    assert missing == []


def test_what_is_listed_has_the_columns_of_the_definition() -> None:
    [version] = definition()["spec"]["versions"]
    columns = [each for each in version["additionalPrinterColumns"] if not each.get("priority")]
    [listing] = [block for block in blocks("console") if "get oxs" in block]
    _, header, row = listing.splitlines()
    assert header.split() == ["NAME", *(each["name"].upper() for each in columns)]
    assert len(row.split()) == len(header.split())


def test_every_condition_and_its_reasons_are_explained() -> None:
    told = PAGE[PAGE.index("| condition |") : PAGE.index("`status.decision`")]
    assert re.findall(r"^\| `(\w+)` \|", told, re.MULTILINE) == [
        str(each) for each in ConditionType
    ]
    assert [str(each) for each in ConditionReason if f"`{each}`" not in told] == []


def test_every_option_is_in_the_table_with_its_variable() -> None:
    table = PAGE[PAGE.index("| option |") :]
    options = {
        (option.opts[0], option.envvar) for option in run.params if hasattr(option, "envvar")
    }
    rows = re.findall(r"^\| `(--[\w-]+)` \| `(\w+)`", table, re.MULTILINE)
    assert set(rows) == options


@pytest.mark.parametrize("kind", ["runAsNonRoot", "readOnlyRootFilesystem", "seccompProfile"])
def test_the_deployment_is_restricted(kind: str) -> None:
    assert kind in str(manifest("Deployment"))


def test_the_right_to_read_secrets_can_be_left_out() -> None:
    printed = CliRunner().invoke(group, ["rbac", "--no-secrets"]).output
    assert "secrets" not in printed
    assert "outboxscalers" in printed


def test_every_decision_is_in_the_table_in_the_words_of_explain() -> None:
    rows = dict(re.findall(r"^\| `(\w+)` \| (.+) \|$", PAGE, re.MULTILINE))
    assert {reason.value: rows.get(reason.value) for reason in REASONS} == {
        reason.value: text for reason, text in REASONS.items()
    }
