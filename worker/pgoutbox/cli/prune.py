"""``pgoutbox prune``: remove what was delivered long ago, at once and not in the workers' time."""

from __future__ import annotations

import math
import sys
import threading
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import click

from pgoutbox.cli.connect import connect, dsn_option, schema_option, settings_for
from pgoutbox.cli.console import INTERRUPTED, OK, complain, progress, say, say_json, some
from pgoutbox.cli.dead_errors import explained
from pgoutbox.cli.interrupt import until_interrupted

if TYPE_CHECKING:
    from collections.abc import Iterator

    import psycopg

TURN_SECONDS = 0.1
"""Between two attempts while a worker prunes by itself."""

# Index outbox_done.
COUNT = b"""
SELECT count(*) FROM outbox
 WHERE status = 'done' AND done_at < now() - %(keep)s::interval
"""


GRANTS = """\
GRANT SELECT, DELETE, UPDATE (status) ON {schema}.outbox TO {role}"""


@click.command("prune")
@click.option(
    "--older-than",
    metavar="TIME",
    help="Only what was delivered before: 3d, 12h. Else PGOUTBOX_RETENTION__DAYS.",
)
@click.option("--batch", type=click.IntRange(1, 10_000), default=1000, show_default=True)
@click.option(
    "--time-budget",
    metavar="SECONDS",
    type=click.FloatRange(0.001),
    help="End after so long. The same command goes on later.",
)
@click.option("--dry-run", is_flag=True, help="Delete nothing, and say how many it would be.")
@click.option("--yes", "-y", is_flag=True, help="Do not ask.")
@dsn_option
@schema_option
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def command(**options: Any) -> int:  # noqa: ANN401 - each is declared above
    """Delete what was delivered long ago, in small transactions, beside the workers.

    They do it by themselves, a little at a time; this is for when much is to go soon, as after
    PGOUTBOX_RETENTION__DAYS was lowered. Dead messages stay, and so does what is not delivered.
    It takes the workers' role, outbox_dispatcher.
    """
    settings = settings_for(options["dsn"], options["schema"])
    schema = settings.database.schema_name
    budget = options["time_budget"]
    keep = options["older_than"] or f"{settings.retention.days} days"
    until = math.inf if budget is None else time.monotonic() + budget
    with connect(settings) as conn, explained(conn, schema, doing="prune", grants=GRANTS):
        run = _Run(conn=conn, schema=schema, keep=keep, batch=options["batch"], until=until)
        total = run.count()
        if total and not options["dry_run"]:
            _ask(total, yes=options["yes"])
            with until_interrupted(run.stop), progress("prune", total) as advance:
                for count in run.pieces():
                    advance(count)
        left = run.count() if run.done else total
    return _tell(run, left, dry_run=options["dry_run"], as_json=options["as_json"])


def _ask(total: int, *, yes: bool) -> None:
    if yes:
        return
    if not sys.stdin.isatty():
        raise click.UsageError(
            f"this would delete {some(total, 'delivered message')}: say --yes, or look first with"
            " --dry-run"
        )
    click.confirm(f"delete {some(total, 'delivered message')}?", abort=True, err=True)


def _tell(run: _Run, left: int, *, dry_run: bool, as_json: bool) -> int:
    if as_json:
        stopped = run.stop.is_set()
        say_json({"deleted": run.done, "left": left, "kept": run.keep, "interrupted": stopped})
    elif dry_run:
        say(f"nothing was deleted; without --dry-run, {some(left, 'delivered message')} would be")
    else:
        say(f"{some(run.done, 'delivered message')} deleted" + (f"; {left} left" if left else ""))
    if run.stop.is_set():
        complain("interrupted; the same command goes on with the rest")
        return INTERRUPTED
    return OK


@dataclass(slots=True, kw_only=True)
class _Run:
    """One run, and how far it has come."""

    conn: psycopg.Connection
    schema: str
    keep: str
    batch: int
    until: float
    """On the monotonic clock."""
    done: int = 0
    stop: threading.Event = field(default_factory=threading.Event)

    def count(self) -> int:
        """How many there are to remove."""
        return int(self._run(COUNT, {"keep": self.keep})[0])

    def pieces(self) -> Iterator[int]:
        """Remove them, a batch in each transaction. Yields how many each time."""
        from pgoutbox.dispatch.retention import EVERYTHING, PRUNE  # noqa: PLC0415 - slow

        values = {"keep": self.keep, "limit": self.batch, **EVERYTHING.parameters}
        while not self.stop.is_set() and time.monotonic() < self.until:
            ours, count = self._run(PRUNE, values)
            if ours and not count:
                return
            if ours:
                self.done += count
                yield count
            else:
                # A worker is at it, and has the turn for a statement.
                self.stop.wait(TURN_SECONDS)

    def _run(self, statement: bytes, values: dict[str, Any]) -> tuple[Any, ...]:
        from pgoutbox.database.desk import begin  # noqa: PLC0415 - slow

        with self.conn.transaction():
            begin(self.conn, self.schema)
            self.conn.execute("SET LOCAL statement_timeout = '60s'")
            [row] = self.conn.execute(statement, values).fetchall()
        return tuple(row)
