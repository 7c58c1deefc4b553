"""``pgoutbox run``: the worker."""

from __future__ import annotations

import os
import sys

import click

from pgoutbox.cli.opening import refused, with_refused
from pgoutbox.errors import InvalidDestination
from pgoutbox.settings import SettingsError, load_settings
from pgoutbox.telemetry.logs_setup import configure
from pgoutbox.worker import Worker, run_process


@click.command("run")
@click.option("--to", metavar="URL", help="Deliver the destination 'default' to this URL.")
def command(to: str | None) -> None:
    """Deliver messages until SIGTERM or SIGINT, then drain and exit."""
    try:
        settings = load_settings(os.environ, to=to, need_destination=True)
    except SettingsError as error:
        raise with_refused(error, to=to) from error
    configure(settings.log.format)
    try:
        code = run_process(lambda: Worker(settings).run())
    except InvalidDestination as error:
        # The worker stops at the first one. Whoever has to put them right wants to hear of all.
        if problems := refused(settings.destinations, to=to):
            raise SettingsError(problems) from error
        raise
    # Not sys.exit: a thread of a publisher's library that hangs would keep the process alive.
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
