"""``pgoutbox check``: everything that would keep a worker from working, before it starts."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import click

from pgoutbox.cli import horizon
from pgoutbox.cli.console import FAILURE, OK, SETTINGS, say, say_json

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pgoutbox.database.checks import Verdict
    from pgoutbox.problem import Problem
    from pgoutbox.settings import Settings, SettingsError
    from pgoutbox.telemetry.tracing.setup import Outlook


@click.command("check")
@click.option("--to", metavar="URL", help="The URL of the destination `default`.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def command(to: str | None, *, as_json: bool) -> int:
    """Tell everything that is wrong with the settings and with the database.

    Publishers are opened as by a worker, and closed again: a jsonl file is created where there
    is none. Exits with 78 for problems with the settings (the database is not asked then), with 1
    for problems with the database, else with 0. Warnings change nothing.

    Databases that an exporter is to watch are looked at too, and alone where there is neither
    PGOUTBOX_DSN nor a destination.
    """
    from pgoutbox.cli.opening import refused, with_refused  # noqa: PLC0415 - slow
    from pgoutbox.settings import SettingsError, load_settings  # noqa: PLC0415 - slow

    try:
        settings = load_settings(os.environ, to=to)
    except SettingsError as error:
        if (watching := _for_an_exporter(error, to)) is not None:
            return _check_watched(watching, as_json=as_json)
        _report(with_refused(error, to=to).problems, (), {}, as_json=as_json)
        return SETTINGS
    if found := refused(settings.destinations, to=to):
        _report(found, (), {}, as_json=as_json)
        return SETTINGS
    return _check_all(settings, as_json=as_json)


def _for_an_exporter(error: SettingsError, to: str | None) -> Settings | None:
    """The settings, if all they lack is a database for workers, and nobody wants workers."""
    from pgoutbox.settings import load_settings  # noqa: PLC0415 - slow

    lacking = [(problem.field, problem.rule) for problem in error.problems]
    if to is not None or lacking != [("PGOUTBOX_DSN", "is required")]:
        return None
    settings = load_settings(os.environ, need_database=False)
    return settings if settings.databases and not settings.destinations else None


def _check_watched(settings: Settings, *, as_json: bool) -> int:
    from pgoutbox.cli import watched  # noqa: PLC0415 - slow
    from pgoutbox.settings import warnings  # noqa: PLC0415 - slow

    problems = watched.problems(settings)
    _report(problems, warnings(settings), _watched(settings), as_json=as_json)
    return FAILURE if problems else OK


def _check_all(settings: Settings, *, as_json: bool) -> int:
    from pgoutbox.cli import watched  # noqa: PLC0415 - slow
    from pgoutbox.settings import warnings  # noqa: PLC0415 - slow
    from pgoutbox.telemetry.tracing.setup import outlook  # noqa: PLC0415 - slow

    verdict = _ask(settings)
    problems = (*verdict.problems, *watched.problems(settings))
    seen = horizon.Seen(None, "the database does not answer")
    if verdict.facts is not None:
        seen = horizon.ask(settings)
    traces = outlook(os.environ)
    facts = _facts(settings, verdict) | {
        "horizon": horizon.fact(seen),
        "tracing": traces.where or "off",
    }
    told = (
        *warnings(settings),
        *verdict.warnings,
        *horizon.warnings(seen.horizon),
        *_about(traces),
    )
    _report(problems, told, facts, as_json=as_json)
    return FAILURE if problems else OK


def _about(traces: Outlook) -> list[Problem]:
    """Somebody asks for spans and would get none, or others; a worker says so and delivers."""
    from pgoutbox.problem import Problem  # noqa: PLC0415 - slow

    if not traces.reason:
        return [] if traces.sampler is None else [traces.sampler]
    return [Problem(field="tracing", rule=f"is off: {traces.reason}", advice=traces.remedy)]


def _ask(settings: Settings) -> Verdict:
    from pgoutbox.database.checks import Wanted, check_database  # noqa: PLC0415 - slow

    wanted = Wanted(
        schema=settings.database.schema_name,
        pooler=settings.database.pooler,
        wakeup=settings.wakeup.mode,
        retention=settings.retention.mode,
        pool_max=settings.database.pool_max,
        destinations=tuple(settings.destinations),
    )
    return check_database(settings.read_dsn(), settings.read_listen_dsn(), wanted)


def _facts(settings: Settings, verdict: Verdict) -> dict[str, str]:
    """What is good to know, besides what is wrong."""
    named = ", ".join(settings.destinations) or "none"
    facts = {"owner": settings.owner, "destinations": named} | _watched(settings)
    if (found := verdict.facts) is None:
        return facts
    server = found.server
    free = max(server.connections - server.connected, 0)
    each = settings.database.pool_max + 1
    return facts | {
        "server": f"PostgreSQL {server.version // 10_000}.{server.version % 10_000}",
        "role": server.role,
        "schema": f"{settings.database.schema_name}, version {_version(verdict)}",
        "wakeup": "notifications arrive" if found.notified else "polling",
        "pooler": "none" if found.keeps_options else "in transaction mode",
        "connections": f"{free} of {server.connections} free; a worker takes up to {each}",
    }


def _watched(settings: Settings) -> dict[str, str]:
    named = ", ".join(sorted(settings.databases))
    return {"databases": named} if named else {}


def _version(verdict: Verdict) -> str:
    applied = verdict.facts.applied if verdict.facts is not None else ()
    return str(applied[-1].version) if applied else "unknown"


def _report(
    problems: Sequence[Problem],
    warnings: Sequence[Problem],
    facts: dict[str, str],
    *,
    as_json: bool,
) -> None:
    if as_json:
        say_json(
            {
                "ok": not problems,
                "problems": [problem.as_dict() for problem in problems],
                "warnings": [warning.as_dict() for warning in warnings],
                "facts": facts,
            }
        )
        return
    for name, fact in facts.items():
        say(f"{name:<13} {fact}")
    for warning in warnings:
        say(f"warning: {warning}")
    for problem in problems:
        say(f"problem: {problem}")
    if not problems:
        say("everything is fine" if not warnings else "this works")
