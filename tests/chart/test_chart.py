"""The chart in every way that its examples install it: valid, closed, and without privileges."""

from __future__ import annotations

import json
import re
from typing import Any

import helm_python
import jsonschema
import kubernetes_validate
import pytest
import yaml
from click.testing import CliRunner

from charts.render import CHOICES, main, values as described
from pgoutbox.settings import load_settings
from pgoutbox.telemetry.catalogue.exporter import PENDING_MESSAGES
from pgoutbox_operator.cli import group
from pgoutbox_operator.crd.definition import definition
from tests.support.helm import CASES, CHART, case, merged, notes, of_kind, pods, render

KUBERNETES = ["1.29", "1.34"]
NOT_BUILT_IN = {"OutboxScaler", "ScaledObject", "PodMonitor", "PrometheusRule"}
MINIMAL = case("minimal")
EVERYTHING = case("everything")


@pytest.fixture(params=CASES)
def manifests(request: pytest.FixtureRequest) -> list[dict[str, Any]]:
    return render(case(request.param))


def test_what_is_generated_is_up_to_date(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(CHART.parents[1])
    assert main(["--check"]) == 0, "run: python -m charts.render --write"


@pytest.mark.parametrize("name", CASES)
def test_helm_finds_nothing_wrong(name: str) -> None:
    found = helm_python.lint(str(CHART), case(name))
    assert found["errors"] == []
    assert [each["error"] for each in found["messages"]] == ["icon is recommended"]


@pytest.mark.parametrize("version", KUBERNETES)
def test_every_object_is_one_of_kubernetes(manifests: list[dict[str, Any]], version: str) -> None:
    checked = [each for each in manifests if each["kind"] not in NOT_BUILT_IN]
    assert checked
    for each in checked:
        kubernetes_validate.validate(each, version, strict=True)


def test_the_scaler_is_one_of_the_definitions(manifests: list[dict[str, Any]]) -> None:
    [version] = definition()["spec"]["versions"]
    for scaler in of_kind(manifests, "OutboxScaler"):
        jsonschema.validate(
            scaler["spec"], version["schema"]["openAPIV3Schema"]["properties"]["spec"]
        )


def test_every_pod_is_restricted(manifests: list[dict[str, Any]]) -> None:
    assert pods(manifests)
    for name, pod in pods(manifests).items():
        assert pod["securityContext"]["runAsNonRoot"] is True, name
        assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}, name
        assert not {"hostNetwork", "hostPID", "hostIPC"} & pod.keys(), name
        assert not [volume for volume in pod["volumes"] if "hostPath" in volume], name
        for container in pod["containers"]:
            assert container["securityContext"] == {
                "allowPrivilegeEscalation": False,
                "readOnlyRootFilesystem": True,
                "capabilities": {"drop": ["ALL"]},
            }, name
            assert container["resources"]["limits"]["memory"], name


def test_nobody_but_the_operator_has_a_token(manifests: list[dict[str, Any]]) -> None:
    for name, pod in pods(manifests).items():
        asks = "operator" in name
        assert pod.get("automountServiceAccountToken", True) is asks, name


def test_no_right_is_of_the_whole_cluster(manifests: list[dict[str, Any]]) -> None:
    assert not of_kind(manifests, "ClusterRole")
    assert not of_kind(manifests, "ClusterRoleBinding")


def test_no_object_names_its_namespace(manifests: list[dict[str, Any]]) -> None:
    assert not [each for each in manifests if "namespace" in each["metadata"]]


def test_every_object_has_the_usual_labels(manifests: list[dict[str, Any]]) -> None:
    for each in manifests:
        labels = each["metadata"]["labels"]
        assert {
            *("helm.sh/chart", "app.kubernetes.io/name", "app.kubernetes.io/instance"),
            *("app.kubernetes.io/managed-by", "app.kubernetes.io/version"),
        } <= labels.keys(), each["kind"]


def test_who_scales_the_workers_owns_their_number() -> None:
    for name in CASES:
        [workers] = of_kind(render(case(name)), "Deployment", "workers")
        fixed = case(name).get("autoscaling", {}).get("type") == "none"
        assert ("replicas" in workers["spec"]) is fixed, name


def test_the_operator_has_the_rights_that_it_says_it_needs() -> None:
    for values, lease in ((MINIMAL, False), (EVERYTHING, True)):
        [role] = of_kind(render(values), "Role")
        secret = values.get("operator", {}).get("existingSecret", "outbox-dsn")
        words = ["rbac", "--namespace", "shop", "--service-account", "shop/operator"]
        words += ["--deployment", "outbox-pgoutbox-workers", "--secret", secret]
        printed = CliRunner().invoke(group, [*words, *(["--lease"] if lease else [])]).stdout
        wanted = [
            rule
            for each in yaml.safe_load_all(printed)
            if each["kind"] == "Role"
            for rule in each["rules"]
        ]
        assert in_order(role["rules"]) == in_order(wanted)


def in_order(rules: list[dict[str, Any]]) -> list[str]:
    return sorted(json.dumps(rule, sort_keys=True) for rule in rules)


@pytest.mark.parametrize("name", CASES)
def test_workers_take_the_settings_that_they_are_given(name: str) -> None:
    [pod] = [spec for who, spec in pods(render(case(name))).items() if who.endswith("-workers")]
    [container] = pod["containers"]
    given = {each["name"]: each.get("value", "pod") for each in container["env"]}
    environ = {key: value for key, value in given.items() if key.startswith("PGOUTBOX_")}
    environ.pop("PGOUTBOX_CONFIG", None)
    del environ["PGOUTBOX_DSN_FILE"]
    settings = load_settings(environ | {"PGOUTBOX_DSN": "host=/tmp"}, publishes=False)
    assert settings.drain.grace == pod["terminationGracePeriodSeconds"]
    assert given["POD_NAME"] == "pod"


def test_a_million_is_written_in_digits() -> None:
    values = merged(MINIMAL, workers__settings={"A": 1000000}, autoscaling__maxAgeSeconds=1000000)
    found = render(values)
    [workers] = of_kind(found, "Deployment", "workers")
    [container] = workers["spec"]["template"]["spec"]["containers"]
    assert {"name": "PGOUTBOX_A", "value": "1000000"} in container["env"]
    [scaler] = of_kind(found, "OutboxScaler")
    assert scaler["spec"]["objective"]["maxAgeSeconds"] == 1000000


def test_keda_asks_for_series_that_the_exporter_has() -> None:
    [scaled] = of_kind(render(case("keda")), "ScaledObject")
    [trigger] = scaled["spec"]["triggers"]
    [name] = re.findall(r"outbox_\w+", trigger["metadata"]["query"])
    assert name == PENDING_MESSAGES.name
    [states] = re.findall(r'state=~"([^"]+)"', trigger["metadata"]["query"])
    assert set(states.split("|")) <= set(PENDING_MESSAGES.values["state"])


def test_a_new_configuration_is_a_new_pod() -> None:
    before, after = (
        of_kind(render(merged(EVERYTHING, workers__config=text)), "Deployment", "workers")[0]
        for text in ("a = 1", "a = 2")
    )
    checksums = {
        each["spec"]["template"]["metadata"]["annotations"]["checksum/config"]
        for each in (before, after)
    }
    assert len(checksums) == 2


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "no secret": ({"database__existingSecret": ""}, "database.existingSecret is required"),
    "grace": ({"workers__drainSoftSeconds": 25}, "takes up to 35: raise it"),
    "min over max": ({"autoscaling__minReplicas": 11}, "more than autoscaling.maxReplicas (10)"),
    "budget": (
        {"autoscaling__connectionBudget": {"total": 10, "reserved": 8}},
        "leaves 2 connections, and 1 workers take up to 4",
    ),
    "budget of a fixed number": (
        {
            "autoscaling": {"type": "none", "connectionBudget": {"total": 10}},
            "workers__replicas": 3,
        },
        "leaves 10 connections, and 3 workers take up to 12",
    ),
    "budget under KEDA": (
        {"autoscaling": {"type": "keda", "connectionBudget": {"total": 10}}},
        "lower workers.poolMax or autoscaling.maxReplicas",
    ),
    "a setting that is a value": (
        {"workers__settings": {"DRAIN__SOFT": "25"}},
        "workers.settings.DRAIN__SOFT is set by workers.drainSoftSeconds",
    ),
    "keda": ({"autoscaling__type": "keda"}, "autoscaling.keda.serverAddress is required"),
    "misspelt": ({"workers__replicaz": 2}, "replicaz"),
    "another type": ({"autoscaling__maxReplicas": "many"}, "maxReplicas"),
    "unknown scaler": ({"autoscaling__type": "hpa"}, "autoscaling"),
    "a setting in lower case": ({"workers__settings": {"lease": "1"}}, "invalid propertyName"),
}


@pytest.mark.parametrize("reason", REFUSED)
def test_what_cannot_work_is_refused_with_the_reason(reason: str) -> None:
    more, told = REFUSED[reason]
    with pytest.raises(helm_python.HelmError, match=re.escape(told)):
        render(merged(MINIMAL, **more))


def test_a_chart_of_charts_may_hand_its_own_values_down() -> None:
    assert render(merged(MINIMAL, **{"global": {"storageClass": "fast"}}))


def test_every_value_is_described_and_the_schema_is_closed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(CHART.parents[1])
    schema = json.loads((CHART / "values.schema.json").read_text())
    for value in described():
        place = schema
        for part in value.path.split("."):
            assert place.get("additionalProperties") is False, value.path
            place = place["properties"][part]
        assert place["description"] == value.meaning
    assert set(CHOICES) <= {value.path for value in described()}


def test_what_to_do_next_is_said() -> None:
    told = notes(MINIMAL)
    assert "helm -n shop test outbox" in told
    assert "get outboxscalers" in told
    assert "There is no destination yet" not in told
    assert "There is no destination yet" in notes({"database": {"existingSecret": "outbox-dsn"}})


def test_alerts_and_dashboard_are_in_the_chart() -> None:
    [rule] = of_kind(render(EVERYTHING), "PrometheusRule")
    rules = [each for one in rule["spec"]["groups"] for each in one["rules"]]
    assert "OutboxDeadLetterGrowth" in {each.get("alert") for each in rules}
    [dashboard] = of_kind(render(EVERYTHING), "ConfigMap", "monitoring")
    assert json.loads(dashboard["data"]["pgoutbox.json"])["title"]
    assert yaml.safe_load((CHART / "Chart.yaml").read_text())["name"] == "pgoutbox"
