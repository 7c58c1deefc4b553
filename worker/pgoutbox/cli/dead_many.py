"""Deciding about all dead letters of a selection: asked first, and in small transactions."""

from __future__ import annotations

import sys
import threading
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import click

from pgoutbox.cli.console import FAILURE, INTERRUPTED, OK, complain, progress, say, say_json, some
from pgoutbox.cli.dead_list import tell_letters
from pgoutbox.cli.interrupt import until_interrupted
from pgoutbox.destinations.rate import Rate
from pgoutbox.errors import PgOutboxError

if TYPE_CHECKING:
    from collections.abc import Iterator

    import psycopg

    from pgoutbox.cli.console import Advance
    from pgoutbox.cli.dead_options import Chosen
    from pgoutbox.database.desk_writes import Action
    from pgoutbox.database.letters import Selection

DONE: dict[Action, str] = {"requeue": "requeued", "skip": "skipped", "discard": "discarded"}
SAMPLE = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """What is to be done, why, and how."""

    action: Action
    reason: str
    dry_run: bool
    yes: bool
    rate: float | None
    """Messages a second, at most."""
    batch: int
    """Messages in one transaction, at most."""


@dataclass(slots=True, kw_only=True)
class _Run:
    """One run through a selection, and how far it has come."""

    conn: psycopg.Connection
    work: Work
    about: Chosen
    selection: Selection
    schema: str
    done: int = 0
    late: int = 0
    stop: threading.Event = field(default_factory=threading.Event)

    def count(self) -> int:
        """How many there are still to decide about."""
        from pgoutbox.database import letters  # noqa: PLC0415 - slow

        action = self.work.action
        return letters.count(self.conn, self.selection, schema=self.schema, action=action).letters

    def go(self, advance: Advance) -> None:
        """Decide about all of them, until there are none or `stop` is set."""
        from psycopg import OperationalError  # noqa: PLC0415 - slow

        from pgoutbox.database import letters  # noqa: PLC0415 - slow

        deciding = letters.decide(
            self.conn,
            self.work.action,
            self.work.reason,
            self.selection,
            schema=self.schema,
            sizes=self.sizes(),
        )
        try:
            for decided in deciding:
                self.done += len(decided)
                self.late += sum(letter.late for letter in decided)
                advance(len(decided))
        except OperationalError as error:
            raise PgOutboxError(
                f"the database failed after {some(self.done, 'message')} had been"
                f" {DONE[self.work.action]}, each of them once: {str(error).strip()}."
                f" {self.how_to_go_on}"
            ) from error

    def sizes(self) -> Iterator[int]:
        """How many may be decided about next, as soon as some may."""
        rate = None if self.work.rate is None else Rate(self.work.rate)
        if rate is not None:
            # A bucket is full at first, and here nothing was saved up.
            rate.spend(rate.available(time.monotonic()), time.monotonic())
        while not self.stop.is_set():
            size, before = self.work.batch, self.done
            if self.about.limit is not None:
                size = min(size, self.about.limit - self.done)
            if rate is None or not size:
                yield size
                continue
            if self.stop.wait(rate.next_in(time.monotonic())):
                return
            yield min(size, rate.available(time.monotonic()))
            rate.spend(self.done - before, time.monotonic())

    @property
    def how_to_go_on(self) -> str:
        """How the rest is decided about, and not what died again since."""
        told = "The same command goes on with the rest"
        if self.about.newer_than is not None:
            # Some of the rest may be older than that by then.
            told += f", with --died-after '{self.selection.died_after}' instead of --newer-than"
        return (
            f"{told}; with --died-before '{self.selection.died_before}' it leaves out what has died"
            " since it began"
        )


def decide_about_all(conn: psycopg.Connection, work: Work, about: Chosen, *, schema: str) -> int:
    """Say how many there are, ask, and decide about them. Returns the exit code.

    A message that dies again meanwhile is left alone. What is interrupted has done whole
    transactions, and can be gone on with.
    """
    from pgoutbox.database import letters  # noqa: PLC0415 - slow

    counted = letters.count(conn, about.selection, schema=schema, action=work.action)
    selection = about.selection.fixed(counted)
    total = counted.letters if about.limit is None else min(counted.letters, about.limit)
    if not total:
        _tell_none(work, as_json=about.as_json)
        return FAILURE
    if work.dry_run:
        shown = letters.listed(
            conn, selection, schema=schema, limit=min(SAMPLE, total), action=work.action
        )
        _tell_dry(work, total, as_json=about.as_json)
        if not about.as_json:
            tell_letters(shown, schema=schema, of=total)
        return OK
    _ask(work, total)
    run = _Run(conn=conn, work=work, about=about, selection=selection, schema=schema)
    began = time.monotonic()
    with until_interrupted(run.stop), progress(work.action, total) as advance:
        run.go(advance)
    return _tell_end(run, seconds=time.monotonic() - began, as_json=about.as_json)


def _ask(work: Work, total: int) -> None:
    if work.yes:
        return
    if not sys.stdin.isatty():
        raise click.UsageError(
            f"this would {work.action} {some(total, 'dead message')}: say --yes, or look first with"
            " --dry-run"
        )
    click.confirm(f"{work.action} {some(total, 'dead message')}?", abort=True, err=True)


def _tell_none(work: Work, *, as_json: bool) -> None:
    if as_json:
        say_json({"action": work.action, "done": 0, "left": 0})
    kind = "message that blocks its lane" if work.action == "skip" else "message"
    complain(f"no dead {kind} fits, and nothing was done")


def _tell_dry(work: Work, total: int, *, as_json: bool) -> None:
    if as_json:
        say_json({"action": work.action, "done": 0, "would_do": total})
    else:
        say(
            f"nothing was changed; without --dry-run, {some(total, 'dead message')} would be"
            f" {DONE[work.action]}"
        )


def _tell_end(run: _Run, *, seconds: float, as_json: bool) -> int:
    left, stopped = run.count(), run.stop.is_set()
    if as_json:
        say_json(
            {
                "action": run.work.action,
                "done": run.done,
                "out_of_order": run.late if run.work.action == "requeue" else 0,
                "left": left,
                "died_after": run.selection.died_after,
                "died_before": run.selection.died_before,
                "interrupted": stopped,
                "seconds": round(seconds, 3),
            }
        )
    else:
        _say_end(run, left=left, seconds=seconds)
    if stopped:
        complain(f"interrupted. {run.how_to_go_on}")
        return INTERRUPTED
    return OK if run.done else FAILURE


def _say_end(run: _Run, *, left: int, seconds: float) -> None:
    told = f"{some(run.done, 'dead message')} {DONE[run.work.action]} in {seconds:.1f}s"
    if run.late and run.work.action == "requeue":
        told += f", {run.late} of them out of order, since their lanes had gone on"
    if left:
        told += f"; {left} left" + (
            ""
            if run.stop.is_set() or run.about.limit
            else ", which somebody else is deciding about"
        )
    say(told)
