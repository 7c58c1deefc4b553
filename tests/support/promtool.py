"""Rules against series that a test makes up, by Prometheus's own tool and its own clock."""

from __future__ import annotations

import os
import subprocess
import tempfile
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from monitoring.render import rules_file
from monitoring.rules import groups
from tests.support.brokers.ladder import program

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

Labels = dict[str, str]
VARIABLE = "PGOUTBOX_TEST_PROMTOOL"


@cache
def promtool() -> str:
    """The path of the tool. The test fails where there is none."""
    found = os.environ.get(VARIABLE) or program("promtool")
    if found is None:
        pytest.fail(
            "No promtool for this test. Install Prometheus (Debian: the package prometheus), or"
            f" set {VARIABLE} to the path of the program.",
            pytrace=False,
        )
    return found


def series(name: str, /, **labels: str) -> str:
    """A series as Prometheus writes it."""
    told = ", ".join(f'{label}="{value}"' for label, value in labels.items())
    return f"{name}{{{told}}}"


def fires(alert: str, given: Mapping[str, str], expected: Mapping[str, Sequence[Labels]]) -> None:
    """Fail unless the alert fires as expected.

    ``given``: values by name and labels, one for each minute, as promtool notes them: ``0x9 1``
    are ten zeros and a one, ``_`` is a scrape without the series. ``expected``: by time
    (``15m``), the labels of the alerts that fire then, the severity included.
    """
    checks = [
        {
            "expr": f'ALERTS{{alertname="{alert}", alertstate="firing"}}',
            "eval_time": at,
            "exp_samples": [{"labels": _fired(alert, labels), "value": 1} for labels in firing],
        }
        for at, firing in expected.items()
    ]
    _run(alert, {"input_series": _series(given), "promql_expr_test": checks})


def tells(
    alert: str, given: Mapping[str, str], at: str, labels: Labels, annotations: Labels
) -> None:
    """Fail unless exactly this one alert fires at that time, with these annotations."""
    expected = [{"exp_labels": labels, "exp_annotations": annotations}]
    check = {"alertname": alert, "eval_time": at, "exp_alerts": expected}
    _run(alert, {"input_series": _series(given), "alert_rule_test": [check]})


def check_rules(text: str) -> subprocess.CompletedProcess[str]:
    """What promtool says about a file of rules."""
    with tempfile.TemporaryDirectory() as folder:
        rules = Path(folder, "rules.yml")
        rules.write_text(text, encoding="utf-8")
        return _promtool("check", "rules", str(rules))


def _run(alert: str, test: Mapping[str, Any]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "rules.yml").write_text(rules_file(_only(alert)), encoding="utf-8")
        file = Path(folder, "test.yml")
        content = {
            "rule_files": ["rules.yml"],
            "evaluation_interval": "1m",
            "tests": [{"interval": "1m", **test}],
        }
        file.write_text(yaml.safe_dump(content), encoding="utf-8")
        done = _promtool("test", "rules", str(file))
    if done.returncode != 0:
        pytest.fail(done.stdout + done.stderr, pytrace=False)


def _only(alert: str) -> list[dict[str, Any]]:
    """The rules of this alert, and what is recorded: the others would only take time."""
    return [
        {**group, "rules": [rule for rule in group["rules"] if rule.get("alert", alert) == alert]}
        for group in groups()
    ]


def _promtool(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [promtool(), *words], capture_output=True, text=True, check=False, timeout=60
    )


def _series(given: Mapping[str, str]) -> list[dict[str, str]]:
    return [{"series": name, "values": values} for name, values in given.items()]


def _fired(alert: str, labels: Labels) -> str:
    return series("ALERTS", alertname=alert, alertstate="firing", **labels)
