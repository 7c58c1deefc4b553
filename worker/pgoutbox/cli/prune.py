"""``pgoutbox prune``: remove what was delivered long ago, at once and not in the workers' time."""

from __future__ import annotations

import math
import sys
import time
from typing import TYPE_CHECKING, Any

import click

from pgoutbox.cli.connect import connect, dsn_option, schema_option, settings_for
from pgoutbox.cli.console import FAILURE, INTERRUPTED, OK, complain, progress, say, say_json, some
from pgoutbox.cli.dead_errors import explained
from pgoutbox.cli.interrupt import until_interrupted

if TYPE_CHECKING:
    from pgoutbox.cli.prune_run import Count, Run

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
    It takes the workers' role, outbox_dispatcher, and their PGOUTBOX_RETENTION__MODE: under
    archive, what has a day in the archive is moved there.
    """
    from pgoutbox.cli.prune_run import Run  # noqa: PLC0415 - slow

    settings = settings_for(options["dsn"], options["schema"])
    schema, retention = settings.database.schema_name, settings.retention
    budget = options["time_budget"]
    with connect(settings) as conn, explained(conn, schema, doing="prune", grants=GRANTS):
        run = Run(
            conn=conn,
            schema=schema,
            keep=options["older_than"] or f"{retention.days} days",
            archive=retention.mode == "archive",
            batch=options["batch"],
            until=math.inf if budget is None else time.monotonic() + budget,
        )
        left = run.left()
        if any(left) and not options["dry_run"]:
            _ask(left, yes=options["yes"])
            with until_interrupted(run.stop), progress("prune", sum(left)) as advance:
                for count in run.pieces():
                    advance(count)
            left = run.left()
    return _tell(run, left, dry_run=options["dry_run"], as_json=options["as_json"])


def _ask(left: Count, *, yes: bool) -> None:
    if yes:
        return
    if not sys.stdin.isatty():
        raise click.UsageError(
            f"this would {_doing(left)}: say --yes, or look first with --dry-run"
        )
    click.confirm(f"{_doing(left)}?", abort=True, err=True)


def _doing(left: Count) -> str:
    delete = f"delete {_counted(left.deleted)}"
    return f"move {_counted(left.moved)} to the archive and {delete}" if left.moved else delete


def _counted(count: int) -> str:
    from pgoutbox.cli.prune_run import MOST  # noqa: PLC0415 - slow

    return f"{'' if count < MOST else 'at least '}{some(count, 'delivered message')}"


def _tell(run: Run, left: Count, *, dry_run: bool, as_json: bool) -> int:
    stopped = run.stop.is_set()
    if as_json:
        done = {"deleted": run.deleted, "moved": run.moved, "left": sum(left), "kept": run.keep}
        say_json(done | {"refused": run.refused, "interrupted": stopped})
    elif dry_run:
        say(f"nothing was done; without --dry-run this would {_doing(left)}")
    else:
        moved = f"{some(run.moved, 'delivered message')} moved to the archive; "
        told = f"{some(run.deleted, 'delivered message')} deleted"
        said = (moved if run.moved else "") + told
        say(f"{said}; {sum(left)} left" if any(left) else said)
    if run.refused:
        several = f"{some(len(run.refused), 'message')} cannot be removed"
        complain(f"{several}, among them {run.refused[0]}")
    if stopped:
        complain("interrupted; the same command goes on with the rest")
        return INTERRUPTED
    return FAILURE if run.refused else OK
