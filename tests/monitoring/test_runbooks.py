"""Every alert has a runbook, and what a runbook tells to type exists."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import click
import pytest

from monitoring.rules import alert_groups, groups
from pgoutbox.cli.main import group as worker_group
from pgoutbox_operator.cli import group as operator_group
from tests.support.known_series import LABELS
from tests.support.promql import selectors

ROOT = Path(__file__).parents[2]
RUNBOOKS = sorted((ROOT / "docs" / "runbooks").glob("*.md"))
SECTIONS = ["Meaning", "Impact", "Diagnosis", "Mitigation"]
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```", re.DOTALL | re.MULTILINE)
PROGRAMS = {"pgoutbox": worker_group, "pgoutbox-operator": operator_group}
ALERTS = [alert for alerts in alert_groups().values() for alert in alerts]

every_runbook = pytest.mark.parametrize("page", RUNBOOKS, ids=lambda page: page.stem)


def lines(page: Path, language: str) -> list[str]:
    blocks = [text for name, text in BLOCK.findall(page.read_text()) if name == language]
    return [line for block in blocks for line in block.splitlines() if line.strip()]


def commands(page: Path) -> list[str]:
    """What is to be typed, in blocks and within sentences."""
    named = re.findall(r"`(pgoutbox(?:-operator)? [^`]+)`", page.read_text())
    typed = [line for line in lines(page, "sh") if line.split(" ")[0] in PROGRAMS]
    return [line.split(" | ")[0] for line in typed] + named


def parse(line: str) -> None:
    """Let click read the command as it would, without running it."""
    program, *words = shlex.split(line)
    command: click.Command = PROGRAMS[program]
    context = click.Context(command)
    while isinstance(command, click.Group):
        name = words.pop(0)
        found = command.get_command(context, name)
        assert found is not None, f"{line}: there is no command {name}"
        command, context = found, click.Context(found, parent=context)
    command.make_context(command.name, words, parent=context.parent)


def test_every_alert_has_a_runbook_and_every_runbook_an_alert() -> None:
    assert {page.stem for page in RUNBOOKS} == {alert.name for alert in ALERTS}


def test_every_alert_says_what_it_is_where_to_read_on_and_how_urgent_it_is() -> None:
    for group_ in groups():
        for rule in group_["rules"]:
            if "alert" in rule:
                assert rule["labels"]["severity"] in {"page", "ticket", "warn"}
                assert rule["annotations"]["summary"]
                assert rule["annotations"]["description"].endswith(".")
                assert (ROOT / rule["annotations"]["runbook_url"]).is_file()


def test_runbooks_may_be_elsewhere() -> None:
    told = {
        rule["annotations"]["runbook_url"]
        for group_ in groups(runbooks="https://wiki.example/outbox/")
        for rule in group_["rules"]
        if "alert" in rule
    }
    assert "https://wiki.example/outbox/OutboxLanesBlocked.md" in told


def test_alerts_of_one_name_differ_in_their_labels() -> None:
    names = [(alert.name, alert.severity, alert.labels) for alert in ALERTS]
    assert len(set(names)) == len(names)


@every_runbook
def test_a_runbook_says_what_it_means_what_it_does_how_to_look_and_what_to_do(page: Path) -> None:
    text = page.read_text()
    assert text.startswith(f"# {page.stem}\n")
    assert re.findall(r"^## (.*)$", text, re.MULTILINE) == SECTIONS
    for section in text.split("\n## ")[1:]:
        assert len(section.splitlines()) > 2


@every_runbook
def test_a_runbook_tells_commands_that_exist(page: Path) -> None:
    found = commands(page)
    assert found
    for line in found:
        parse(line)


@every_runbook
def test_a_runbook_asks_prometheus_for_what_there_is(page: Path) -> None:
    for line in lines(page, "promql"):
        for each in selectors(line):
            assert each.name in LABELS or each.name == "up" or each.name.startswith("process_")


@every_runbook
def test_a_runbook_names_settings_that_exist(page: Path) -> None:
    known = (ROOT / "docs" / "settings.md").read_text()
    for name in re.findall(r"PGOUTBOX_[A-Z_<>]+", page.read_text()):
        assert f"`{name}`" in known


def test_a_command_that_does_not_exist_is_found() -> None:
    with pytest.raises(AssertionError):
        parse("pgoutbox dead bury 42")
    with pytest.raises(AssertionError):
        parse("pgoutbox-operator describe shop/orders")
    with pytest.raises(click.UsageError):
        parse("pgoutbox dead requeue 42 --because it")
