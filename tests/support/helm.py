"""The chart as Helm renders it, without a cluster: `helm_python` is Helm's own code in a wheel."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import helm_python
import yaml

ROOT = Path(__file__).resolve().parents[2]
CHART = ROOT / "charts" / "pgoutbox"
CASES = sorted(path.name.removesuffix("-values.yaml") for path in (CHART / "ci").glob("*.yaml"))
RELEASE, NAMESPACE = "outbox", "shop"

Manifest = dict[str, Any]
Values = dict[str, Any]


def case(name: str) -> Values:
    """The values of ``ci/<name>-values.yaml``."""
    found: Values = yaml.safe_load((CHART / "ci" / f"{name}-values.yaml").read_text())
    return found


def merged(base: Values, **more: Any) -> Values:
    """``base`` with other values; ``workers__replicas=2`` is one within another."""
    values = copy.deepcopy(base)
    for path, value in more.items():
        *above, name = path.split("__")
        place = values
        for part in above:
            place = place.setdefault(part, {})
        place[name] = value
    return values


def render(values: Values) -> list[Manifest]:
    """All objects that an install makes, hooks and tests included. Raises HelmError."""
    chart = helm_python.Chart.load(str(CHART))
    try:
        chart.validate_schema(values)
        texts = chart.render(values, name=RELEASE, namespace=NAMESPACE, is_install=True)
    finally:
        chart.close()
    found = [
        document
        for path, text in texts.items()
        if path.endswith(".yaml")
        for document in yaml.safe_load_all(text)
    ]
    return [document for document in found if document]


def notes(values: Values) -> str:
    """What Helm says after an install."""
    chart = helm_python.Chart.load(str(CHART))
    try:
        rendered = chart.render(values, name=RELEASE, namespace=NAMESPACE, is_install=True)
    finally:
        chart.close()
    return rendered["pgoutbox/templates/NOTES.txt"]


def of_kind(manifests: list[Manifest], kind: str, component: str | None = None) -> list[Manifest]:
    """Those of one kind, of one component."""
    return [
        each
        for each in manifests
        if each["kind"] == kind
        and component in (None, each["metadata"]["labels"]["app.kubernetes.io/component"])
    ]


def pods(manifests: list[Manifest]) -> dict[str, Manifest]:
    """The spec of every pod, by the name of what makes it."""
    found = {}
    for each in manifests:
        if each["kind"] == "Pod":
            found[each["metadata"]["name"]] = each["spec"]
        elif each["kind"] in {"Deployment", "Job"}:
            found[each["metadata"]["name"]] = each["spec"]["template"]["spec"]
    return found
