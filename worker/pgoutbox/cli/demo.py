"""``pgoutbox demo``: see it work before anything is set up."""

from __future__ import annotations

import contextlib
import sys
from typing import TYPE_CHECKING

import click

from pgoutbox.cli.console import FAILURE, OK, complain, say, say_json

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pgoutbox.demo.perform import Ending
    from pgoutbox.demo.table import Screen


@click.command("demo")
@click.option(
    "--dsn",
    help="A server instead of a throw-away one. Everything is made in a schema of its own,"
    " which is dropped afterwards.",
)
@click.option(
    "--seconds",
    type=click.FloatRange(2, 600),
    default=20.0,
    show_default=True,
    help="How long the shop sells; all in all it takes about ten more.",
)
@click.option(
    "--rate",
    type=click.FloatRange(20, 200),
    default=80.0,
    show_default=True,
    help="Orders per second.",
)
@click.option("--json", "as_json", is_flag=True, help="End with one JSON object.")
def command(dsn: str | None, *, seconds: float, rate: float, as_json: bool) -> int:
    """Watch a shop, a consumer and three workers, of which one is killed and one stopped.

    Exits with 1 unless every committed message was delivered or is dead for a known reason, and
    none that was rolled back was delivered.
    """
    from pgoutbox.demo.perform import perform  # noqa: PLC0415 - slow
    from pgoutbox.demo.plan import Plan  # noqa: PLC0415

    with _screen() as screen:
        ending = perform(Plan(seconds=seconds, rate=rate), screen, dsn=dsn)
    _tell(ending, as_json=as_json)
    return FAILURE if ending.broken else OK


@contextlib.contextmanager
def _screen() -> Iterator[Screen]:
    from pgoutbox.demo.table import LiveScreen, PlainScreen  # noqa: PLC0415 - slow

    if not sys.stderr.isatty():
        yield PlainScreen(lambda line: click.echo(line, err=True))
        return
    from rich.console import Console  # noqa: PLC0415 - slow

    with LiveScreen(Console(stderr=True)) as screen:
        yield screen


def _tell(ending: Ending, *, as_json: bool) -> None:
    from pgoutbox.demo.report import report_of, summary  # noqa: PLC0415 - as above

    say(summary(ending.findings))
    for sentence in ending.broken:
        complain(sentence)
    if ending.logs is not None:
        complain(f"the workers' logs are in {ending.logs}")
    if as_json:
        say_json(report_of(ending.findings).as_dict())
