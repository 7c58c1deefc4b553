"""docs/cli.md has every command and option, as `--help` tells them."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import click

from pgoutbox.cli import reference
from pgoutbox.cli.main import COMMANDS, group
from tests.docs.fences import ROOT

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    import pytest

PAGE = (ROOT / "docs" / "cli.md").read_text(encoding="utf-8")


def commands(context: click.Context) -> Iterator[click.Context]:
    yield context
    if isinstance(context.command, click.Group):
        for name in context.command.list_commands(context):
            found = context.command.get_command(context, name)
            assert found is not None
            yield from commands(click.Context(found, info_name=name, parent=context))


def test_the_page_is_up_to_date(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    assert reference.main(["--check"]) == 0


def test_every_command_has_a_section_with_its_options() -> None:
    sections = {part.split("\n")[0]: part for part in PAGE.split("\n## ")}
    contexts = list(commands(click.Context(group, info_name="pgoutbox")))
    assert len(contexts) > len(COMMANDS) + 5
    for context in contexts:
        section = sections[context.command_path]
        for option in context.command.params:
            if isinstance(option, click.Option):
                assert option.opts[-1] in section, (context.command_path, option.opts)


def test_a_stale_page_is_found_and_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "docs").mkdir()
    shutil.copy(ROOT / "docs" / "cli.md", tmp_path / "docs")
    monkeypatch.chdir(tmp_path)
    page = tmp_path / "docs" / "cli.md"
    page.write_text(page.read_text() + "more")
    assert reference.main(["--check"]) == 1
    assert "--write" in capsys.readouterr().err
    assert reference.main(["--write"]) == 0
    assert page.read_text() == PAGE
