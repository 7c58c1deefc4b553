"""``pgoutbox exporter``: what the table holds, for Prometheus."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from typing import TYPE_CHECKING

import click

from pgoutbox.cli.connect import dsn_option, schema_option, settings_for_watching

if TYPE_CHECKING:
    from collections.abc import Callable

    from pgoutbox.settings import Settings
    from pgoutbox.telemetry.exporter_source import Source

DEFAULT_INTERVAL = 10.0


@click.command("exporter")
@dsn_option
@schema_option
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    help="Instead of PGOUTBOX_HTTP__PORT; 0 takes any free one.",
)
@click.option(
    "--interval",
    type=click.FloatRange(min=1),
    default=DEFAULT_INTERVAL,
    show_default=True,
    help="Seconds between two looks at the database, however often it is scraped.",
)
def command(dsn: str | None, schema: str | None, port: int | None, interval: float) -> None:
    """Export what the table holds, until SIGTERM or SIGINT. Run one for each database, or for all.

    With PGOUTBOX_DATABASES__<NAME>__DSN it watches several, told apart by the label "database".

    Serves /metrics and /healthz. It needs a role that may call outbox_stats and outbox_horizon,
    and nothing else.
    """
    # Late, since `pgoutbox --help` need not pay for it.
    from pgoutbox.telemetry.logs_setup import configure  # noqa: PLC0415
    from pgoutbox.worker import run_process  # noqa: PLC0415

    settings = settings_for_watching(dsn, schema)
    configure(settings.log.format)
    code = run_process(lambda: serve(settings, port=port, interval=interval))
    # Not sys.exit: a look under way has nothing to lose, and is not waited for.
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


async def serve(settings: Settings, *, port: int | None, interval: float) -> int:
    """Serve until a signal; ``port`` None is that of the settings.

    Raises ProbesUnavailable, and whatever bug ends the looking.
    """
    import structlog  # noqa: PLC0415

    from pgoutbox.telemetry.exporter import Exporter  # noqa: PLC0415
    from pgoutbox.telemetry.probes import Probes, Readiness  # noqa: PLC0415

    watched = sources(settings, interval)
    told = _signals()
    registry = Exporter(watched).registry
    probes = Probes(
        port=settings.http.port if port is None else port,
        registry=registry,
        readiness=Readiness(ready=True),
        setting="PGOUTBOX_HTTP__PORT" if port is None else "--port",
    )
    await probes.start()
    named = {"databases": sorted(settings.databases)} if settings.databases else {}
    structlog.get_logger().info("exporter started", port=probes.port, interval=interval, **named)
    looking = [asyncio.create_task(source.watch(), name="look") for source in watched]
    waiting = asyncio.create_task(told.wait(), name="signal")
    await asyncio.wait([*looking, waiting], return_when=asyncio.FIRST_COMPLETED)
    for each in looking:
        if each.done():
            each.result()
    return 0


def sources(settings: Settings, interval: float = DEFAULT_INTERVAL) -> list[Source]:
    """One for each database; each looks by itself, so none waits for another."""
    from pgoutbox.database.conninfo import DatabaseOptions  # noqa: PLC0415
    from pgoutbox.telemetry.exporter_source import STATEMENT_SECONDS, Source  # noqa: PLC0415

    schema = settings.database.schema_name
    wanted: list[tuple[str | None, Callable[[], str], str]] = [
        (name, each.read_dsn, each.schema_name or schema)
        for name, each in sorted(settings.databases.items())
    ]
    return [
        Source(
            DatabaseOptions(
                dsn=dsn,
                schema=where,
                statement_timeout=STATEMENT_SECONDS,
                application_name="pgoutbox exporter",
            ),
            name=name,
            interval=interval,
        )
        for name, dsn, where in wanted or [(None, settings.read_dsn, schema)]
    ]


def _signals() -> asyncio.Event:
    told = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, told.set)
    return told
