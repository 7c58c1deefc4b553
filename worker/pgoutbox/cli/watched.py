"""What `pgoutbox check` says about each of several databases that an exporter is to watch."""

from __future__ import annotations

import asyncio
import os
from typing import TYPE_CHECKING

import psycopg

from pgoutbox.cli.exporter import sources
from pgoutbox.problem import Problem
from pgoutbox.settings import located
from pgoutbox.settings.names import variable

if TYPE_CHECKING:
    from pgoutbox.settings import Settings
    from pgoutbox.telemetry.exporter_source import Source


def problems(settings: Settings) -> list[Problem]:
    """Look at each as an exporter does, all at once, and tell what fails."""
    found = asyncio.run(_look_at_all(settings)) if settings.databases else []
    return located(found, os.environ)


async def _look_at_all(settings: Settings) -> list[Problem]:
    found = await asyncio.gather(*[_look_at(source) for source in sources(settings)])
    return [problem for problem in found if problem is not None]


async def _look_at(source: Source) -> Problem | None:
    _, failure = await source.look_once()
    if failure is None:
        return None
    return Problem(
        field=variable(("databases", source.name or "", "dsn")),
        rule=f"cannot be watched: {source.why(failure).rstrip('.?')}",
        advice=_advice(failure),
    )


def _advice(failure: BaseException) -> str:
    if isinstance(failure, psycopg.errors.InsufficientPrivilege):
        return "As the owner of the tables: `pgoutbox migrate --roles`, and GRANT outbox_operator."
    if isinstance(failure, psycopg.OperationalError) and failure.sqlstate is None:
        return "Check host, port, user and password, and that this machine may connect."
    return ""
