"""What is committed is what the descriptions say, and others can be made of them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from monitoring import render
from monitoring.limits import Limits, Pace
from monitoring.rules import groups
from tests.support.promtool import check_rules

ROOT = Path(__file__).parents[2]


def expressions(limits: Limits) -> str:
    return "\n".join(rule["expr"] for group in groups(limits) for rule in group["rules"])


def test_the_committed_files_are_up_to_date(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    assert render.main(["--check"]) == 0


def test_a_file_that_was_edited_by_hand_is_found_and_repaired(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "monitoring").mkdir()
    (tmp_path / "docs").mkdir()
    (tmp_path / render.PAGE).write_text("# Ours\n<!-- alerts -->\nold\n<!-- end -->\nafter\n")
    assert render.main(["--check"]) == 1
    assert str(render.RULES) in capsys.readouterr().err
    assert render.main(["--write"]) == 0
    assert render.main(["--check"]) == 0
    (tmp_path / render.DASHBOARD).write_text("{}")
    assert render.main(["--check"]) == 1
    page = (tmp_path / render.PAGE).read_text()
    assert page.startswith("# Ours\n")
    assert page.endswith("after\n")
    assert "OutboxOldestPendingAge" in page
    assert "old\n" not in page


def test_rules_are_printed_with_thresholds_of_ones_own(
    capsys: pytest.CaptureFixture[str],
) -> None:
    words = ["--rules", "--oldest-pending-seconds", "900", "--delivery-seconds", "60"]
    assert render.main([*words, "--runbooks", "https://wiki.example"]) == 0
    printed = capsys.readouterr().out
    assert yaml.safe_load(printed)["groups"]
    assert "> 900" in printed
    assert 'le="60.0"' in printed
    assert "https://wiki.example/OutboxOldestPendingAge.md" in printed


def test_no_description_counts_what_a_following_word_names_so_any_number_fits() -> None:
    counted = re.compile(r"\{\{ \$value( \| (humanize|printf \"%.0f\"))? \}\}(?![.,;:)])")
    alerts = [rule for group in groups() for rule in group["rules"] if "alert" in rule]
    told = [rule["annotations"]["description"] for rule in alerts]
    assert [text for text in told if counted.search(text)] == []
    assert sum("{{ $value | humanize }}" in text for text in told) > 1


@pytest.mark.parametrize(
    "words",
    [
        ["--delivery-seconds", "31"],
        ["--delivery-objective", "99.9"],
        ["--backlog-messages", "10001"],
    ],
)
def test_thresholds_that_no_metric_can_reach_are_refused(
    words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert render.main(["--rules", *words]) == 2
    assert words[1] in capsys.readouterr().err


def test_what_is_rendered_reads_back_as_it_was_described() -> None:
    assert yaml.safe_load((ROOT / render.RULES).read_text())["groups"] == groups()


@pytest.mark.parametrize(
    ("seconds", "scale", "written"),
    [
        (300, 1, "5m"),
        (3 * 24 * 3600, 1, "3d"),
        (5400, 1, "90m"),
        (300, 1 / 60, "5s"),
        (60, 1 / 60, "1s"),
        (60, 1 / 240, "250ms"),
    ],
)
def test_durations_are_written_as_prometheus_does(
    seconds: float, scale: float, written: str
) -> None:
    assert Pace(scale)(seconds) == written


def test_a_threshold_is_used_in_every_place_that_it_is_about() -> None:
    usual, strict = expressions(Limits()), expressions(Limits(delivery_seconds=10))
    assert usual.count('le="30.0"') == strict.count('le="10.0"') > 0


@pytest.mark.broker
@pytest.mark.parametrize("pace", [Pace(), Pace(1 / 60), Pace(1 / 300)])
def test_promtool_accepts_the_rules_at_any_pace(pace: Pace) -> None:
    done = check_rules(render.rules_file(groups(Limits(), pace)))
    assert done.returncode == 0, done.stdout + done.stderr
    assert "SUCCESS" in done.stdout


@pytest.mark.broker
def test_promtool_refuses_rules_that_are_wrong() -> None:
    assert check_rules("groups: [{name: a, rules: [{alert: A, expr: 'sum('}]}]").returncode != 0
