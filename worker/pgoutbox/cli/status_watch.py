"""``pgoutbox status --watch``: the same again and again, also while the database is away."""

from __future__ import annotations

import sys
import threading
import time
from collections import deque
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, NamedTuple

import click

from pgoutbox.cli import horizon
from pgoutbox.cli.connect import connect
from pgoutbox.cli.console import complain, say, say_json
from pgoutbox.cli.interrupt import until_interrupted
from pgoutbox.cli.status import Status, as_object, look

if TYPE_CHECKING:
    import psycopg

    from pgoutbox.database.statistics import Statistics
    from pgoutbox.settings import Settings

WINDOW = 30.0
"""Seconds that rates are taken over: workers tell their counters every ten."""
RATES = ("published", "failed", "buried", "lease_lost")


class Counters(NamedTuple):
    """What the workers had counted at a moment, each since it started."""

    at: float
    of: dict[str, dict[str, float]]
    """By incarnation."""


@dataclass(slots=True)
class Rates:
    """How quickly the workers' counters grow."""

    _seen: deque[Counters] = field(default_factory=deque)

    def add(self, found: Statistics) -> dict[str, float]:
        """Take note of one look. Per second over the last half minute; empty at first."""
        of = {
            worker.incarnation: {name: float(worker.counters.get(name, 0)) for name in RATES}
            for worker in found.workers
        }
        self._seen.append(Counters(found.at, of))
        # The first one stays until the second is old enough to be it.
        while found.at - self._seen[min(1, len(self._seen) - 1)].at >= WINDOW:
            self._seen.popleft()
        first = self._seen[0]
        if found.at <= first.at:
            return {}
        # A worker that started meanwhile began at 0; one that left takes its counters with it.
        grown = {
            name: sum(
                max(counted[name] - first.of.get(who, {}).get(name, 0.0), 0.0)
                for who, counted in of.items()
            )
            for name in RATES
        }
        return {name: count / (found.at - first.at) for name, count in grown.items()}


def watch(settings: Settings, *, every: float, as_json: bool) -> None:
    """Show the status every so many seconds, until Ctrl-C.

    Raises what `look` raises at the first time; later it says so and goes on.
    """
    conn: psycopg.Connection | None = None
    rates, first, stop = Rates(), True, threading.Event()
    with until_interrupted(stop):
        while not stop.is_set():
            began = time.monotonic()
            conn = _once(settings, conn, rates, first=first, as_json=as_json)
            first = False
            stop.wait(max(0.0, began + every - time.monotonic()))
    if conn is not None:
        conn.close()


def _once(
    settings: Settings,
    conn: psycopg.Connection | None,
    rates: Rates,
    *,
    first: bool,
    as_json: bool,
) -> psycopg.Connection | None:
    """One look. Returns the connection for the next one, None where there is to be a new one."""
    from psycopg import OperationalError  # noqa: PLC0415 - slow

    try:
        conn = conn or connect(settings)
        status = look(conn, schema=settings.database.schema_name)
    except OperationalError as error:
        if first:
            raise
        said = " ".join(str(error).split())
        complain(f"{_now()}: the database does not answer, trying again: {said}")
        if conn is not None:
            conn.close()
        return None
    _show(status, rates.add(status.statistics), as_json=as_json)
    return conn


def _show(status: Status, rates: dict[str, float], *, as_json: bool) -> None:
    if as_json:
        say_json(as_object(status) | {"rates": rates})
        sys.stdout.flush()
        return
    from pgoutbox.cli.status_view import show  # noqa: PLC0415 - for people only

    # Does nothing where it is no terminal.
    click.clear()
    per_second = ", ".join(f"{name.replace('_', ' ')} {rate:.1f}/s" for name, rate in rates.items())
    say(f"{_now()}  {per_second}".rstrip())
    show(status)
    horizon.show(status.seen)
    if not sys.stdout.isatty():
        say()
        sys.stdout.flush()


def _now() -> str:
    return datetime.now(UTC).strftime("%H:%M:%SZ")
