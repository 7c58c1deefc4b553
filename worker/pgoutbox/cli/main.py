"""The group of commands: loaded when they are used, and one sentence for whatever goes wrong."""

from __future__ import annotations

import os
import sys
import traceback
from importlib import import_module
from typing import NamedTuple

import click

from pgoutbox._version import __version__
from pgoutbox.cli.console import FAILURE, INTERRUPTED, OK, SETTINGS, complain
from pgoutbox.errors import PgOutboxError


class Entry(NamedTuple):
    """Where a command lives, and what the overview says about it."""

    module: str
    summary: str


COMMANDS = {
    "run": Entry("pgoutbox.cli.run", "Deliver messages until told to stop."),
    "migrate": Entry("pgoutbox.cli.migrate", "Create or update the outbox's tables."),
    "check": Entry("pgoutbox.cli.check", "Tell what is wrong with settings and database."),
    "status": Entry("pgoutbox.cli.status", "Show backlog, ages and workers."),
    "enqueue": Entry("pgoutbox.cli.enqueue", "Put messages into the outbox by hand."),
    "doctor": Entry("pgoutbox.cli.doctor", "Tell what is wrong with an outbox in use."),
    "show": Entry("pgoutbox.cli.show", "Tell the whole life of one message."),
    "dead": Entry("pgoutbox.cli.dead", "List, requeue, skip or discard dead messages."),
    "prune": Entry("pgoutbox.cli.prune", "Delete what was delivered long ago."),
    "destinations": Entry("pgoutbox.cli.destinations", "List destinations, or try one."),
    "exporter": Entry("pgoutbox.cli.exporter", "Export what the table holds, for Prometheus."),
    "demo": Entry("pgoutbox.cli.demo", "Watch everything work on a throw-away server."),
    "bench": Entry("pgoutbox.cli.bench", "Measure how fast it goes, on a throw-away server."),
}


class Group(click.Group):
    """Imports a command when it is called, and turns exceptions into sentences and codes."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        """In the order in which a newcomer needs them."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        """Import the command."""
        entry = COMMANDS.get(cmd_name)
        if entry is None:
            return None
        command: click.Command = import_module(entry.module).command
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        """List the commands without importing them."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, entry.summary) for name, entry in COMMANDS.items()])

    def invoke(self, ctx: click.Context) -> object:
        """Run a command. Its int is the exit code."""
        try:
            result: object = super().invoke(ctx)
            sys.stdout.flush()
        except (click.ClickException, click.exceptions.Exit, click.Abort):
            raise
        except KeyboardInterrupt:
            complain("interrupted")
            ctx.exit(INTERRUPTED)
        except BrokenPipeError:
            # Whoever read our output has seen enough. The interpreter flushes once more at its
            # end, and must find something that takes it.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            ctx.exit(OK)
        except Exception as error:  # noqa: BLE001 - the last one who can explain it
            ctx.exit(explain(error, debug=ctx.params["debug"]))
        if type(result) is int:
            ctx.exit(result)
        return result


def explain(error: Exception, *, debug: bool) -> int:
    """Tell a person what went wrong, and return the exit code."""
    if debug:
        traceback.print_exception(error)
    if problems := getattr(error, "problems", None):
        for problem in problems:
            complain(str(problem))
        return SETTINGS
    complain(sentence(error))
    if not (debug or _is_expected(error)):
        complain("this is a bug; `pgoutbox --debug ...` shows where")
    return FAILURE


def sentence(error: BaseException) -> str:
    """One line about an exception."""
    text = "; ".join(line.strip() for line in str(error).splitlines() if line.strip())
    if isinstance(error, PgOutboxError) and text:
        return text
    if isinstance(error, ModuleNotFoundError):
        return f"the package {error.name} is not installed"
    if _is_database_error(error):
        return f"the database: {text or type(error).__name__}"
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def _is_expected(error: Exception) -> bool:
    return isinstance(error, PgOutboxError | OSError | ImportError) or _is_database_error(error)


def _is_database_error(error: BaseException) -> bool:
    # By name: whoever raises it has imported psycopg, and nobody else needs to.
    return any(kind.__module__.startswith("psycopg") for kind in type(error).__mro__)


@click.group(cls=Group, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="pgoutbox", message="%(prog)s %(version)s")
@click.option("--debug", is_flag=True, help="Show the traceback of an error.")
def group(debug: bool) -> None:  # noqa: FBT001 - click's calling convention; see invoke
    """A transactional outbox for PostgreSQL.

    Settings are environment variables; `pgoutbox check` tells what is wrong with them.
    """
