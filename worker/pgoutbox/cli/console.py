"""What commands say: results to stdout, everything else to stderr."""

from __future__ import annotations

import contextlib
import json
import re
import sys
import time
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    Advance = Callable[[int], None]

# Exit codes. click itself exits with 2 after a mistake in the usage.
OK = 0
FAILURE = 1
SETTINGS = 78  # EX_CONFIG of sysexits.h
INTERRUPTED = 130

PLAIN_INTERVAL = 5.0

# What a terminal obeys or reorders instead of showing it.
_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


def shown(text: str) -> str:
    """The same without what a terminal would obey: some of it is what strangers sent."""
    return _CONTROL.sub("\N{REPLACEMENT CHARACTER}", text.replace("\r\n", "\n"))


def say(text: str = "") -> None:
    """A line of the result."""
    click.echo(shown(text))


def complain(text: str) -> None:
    """A line about what is wrong."""
    click.echo(f"pgoutbox: {shown(text)}", err=True)


def say_json(value: Mapping[str, object]) -> None:
    """One object on one line. Whatever JSON does not know becomes a string."""
    text = json.dumps(value, default=str, ensure_ascii=False)
    click.echo(_CONTROL.sub(lambda found: f"\\u{ord(found[0]):04x}", text))


def some(count: int, noun: str) -> str:
    """``1 message``, ``2 messages``."""
    return f"{count} {noun}{'' if count == 1 else 's'}"


def headers_of(given: Iterable[str]) -> dict[str, str]:
    """What the option ``--header NAME=VALUE`` said, each time."""
    headers = {}
    for text in given:
        name, equals, value = text.partition("=")
        if not (name and equals):
            raise click.BadParameter(f"{text!r} is not NAME=VALUE", param_hint="--header")
        headers[name] = value
    return headers


@contextlib.contextmanager
def progress(doing: str, total: int | None = None) -> Iterator[Advance]:
    """Show how far long work is, on stderr: a bar on a terminal, a line now and then elsewhere.

    Yields a function that takes how many more are done.
    """
    if sys.stderr.isatty():
        with _bar(doing, total) as advance:
            yield advance
    else:
        yield _lines(doing, total)


@contextlib.contextmanager
def _bar(doing: str, total: int | None) -> Iterator[Advance]:
    from rich.console import Console  # noqa: PLC0415 - slow to import, and rarely needed
    from rich.progress import (  # noqa: PLC0415
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
    )

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    console = Console(stderr=True)
    with Progress(*columns, TimeElapsedColumn(), console=console, transient=True) as bar:
        task = bar.add_task(doing, total=total)
        yield lambda count: bar.advance(task, count)


def _lines(doing: str, total: int | None) -> Advance:
    """Short work says nothing at all."""
    done = 0
    told_at = time.monotonic()

    def advance(count: int) -> None:
        nonlocal done, told_at
        done += count
        if time.monotonic() - told_at >= PLAIN_INTERVAL:
            told_at = time.monotonic()
            complain(f"{doing}: {done}" + ("" if total is None else f" of {total}"))

    return advance
