"""The page about the commands, generated from them: ``python -m pgoutbox.cli.reference --write``.

Run it in the project's folder; ``--check`` writes nothing and fails when the page is out of date.
"""

from __future__ import annotations

import argparse
import inspect
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from pgoutbox.cli.main import group

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

PAGE = Path("docs/cli.md")
INTRODUCTION = """\
# Commands

What `pgoutbox COMMAND --help` says, on one page; settings that a command reads are in
[Settings](settings.md). Exit codes: 0 for success, 1 for a failure that the last line of standard
error explains, 2 for words that a command does not understand, 78 for problems with the settings,
130 after Ctrl-C.
"""


def page() -> str:
    """The whole of docs/cli.md."""
    return "\n".join([INTRODUCTION, *_sections(click.Context(group, info_name="pgoutbox"))])


def main(arguments: Sequence[str] | None = None) -> int:
    """Write or check docs/cli.md below the current folder; 1 when it is out of date."""
    parser = argparse.ArgumentParser(prog="python -m pgoutbox.cli.reference")
    action = parser.add_mutually_exclusive_group(required=True)
    action.add_argument("--write", action="store_true", help="bring the page up to date")
    action.add_argument("--check", action="store_true", help="fail when it is out of date")
    write = parser.parse_args(arguments).write
    stale = not PAGE.exists() or PAGE.read_text(encoding="utf-8") != page()
    if stale and write:
        PAGE.write_text(page(), encoding="utf-8")
    if stale and not write:
        sys.stderr.write(f"{PAGE} is out of date; run this with --write\n")
        return 1
    return 0


def _sections(context: click.Context) -> Iterator[str]:
    """The command and all below it, in the order of the help."""
    command = context.command
    yield f"## {context.command_path}\n"
    yield f"`{' '.join([context.command_path, *command.collect_usage_pieces(context)])}`\n"
    yield _prose(inspect.cleandoc(command.help or "").replace("\f", "")) + "\n"
    yield from _options(context)
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            found = command.get_command(context, name)
            if found is not None and not found.hidden:
                yield from _sections(click.Context(found, info_name=name, parent=context))


def _options(context: click.Context) -> Iterator[str]:
    told = (each.get_help_record(context) for each in context.command.params)
    rows = [f"| `{_cell(names)}` | {_cell(_prose(text))} |" for names, text in filter(None, told)]
    if rows:
        yield "\n".join(["| Option | Meaning |", "|---|---|", *rows]) + "\n"


def _prose(text: str) -> str:
    # What stands in backticks is shown as it is, and elsewhere this would be a tag.
    parts = text.split("`")
    return "`".join(
        part.replace("<", "&lt;") if n % 2 == 0 else part for n, part in enumerate(parts)
    )


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


if __name__ == "__main__":
    sys.exit(main())
