"""``pgoutbox doctor``: what is wrong with an outbox in use, and what to do about each."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from pgoutbox.cli import horizon
from pgoutbox.cli.connect import connect, dsn_option, schema_option, settings_for
from pgoutbox.cli.console import FAILURE, OK, say, say_json
from pgoutbox.cli.status import forbidden
from pgoutbox.errors import MigrationError

if TYPE_CHECKING:
    import psycopg

    from pgoutbox.database.findings import Finding, Severity

ORDER: dict[Severity, int] = {"problem": 0, "warning": 1, "note": 2}


@click.command("doctor")
@dsn_option
@schema_option
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def command(dsn: str | None, schema: str | None, *, as_json: bool) -> int:
    """Look for what is wrong with an outbox in use, and say what to do about it.

    Problems keep messages from being delivered, warnings will or slow it down, notes are good to
    know. Exits with 1 when there is more than notes. `pgoutbox check` tells what would keep a
    worker from starting.
    """
    settings = settings_for(dsn, schema)
    database = settings.database
    with connect(settings) as conn:
        findings = examine(conn, schema=database.schema_name, pool_max=database.pool_max)
    serious = any(finding.severity != "note" for finding in findings)
    if as_json:
        say_json({"ok": not serious, "findings": list(map(asdict, findings))})
    else:
        _say(findings)
    return FAILURE if serious else OK


def examine(conn: psycopg.Connection, *, schema: str, pool_max: int) -> list[Finding]:
    """All findings, the worst first.

    Raises MigrationError where there is no outbox, PgOutboxError where this role may not look.
    """
    from psycopg import errors  # noqa: PLC0415 - slow

    from pgoutbox.database import findings, statistics  # noqa: PLC0415 - slow
    from pgoutbox.database.doctor import read_condition  # noqa: PLC0415 - slow

    with conn.transaction():
        conn.execute("SET LOCAL statement_timeout = '10s'")
        condition = read_condition(conn, schema=schema)
        if condition is None:
            raise MigrationError(
                f'there is no outbox in schema "{schema}" of this database: run `pgoutbox migrate`'
            )
        found = [
            *findings.of_table(condition, schema=schema),
            *findings.of_vacuum(condition, schema=schema),
            *findings.of_server(condition, pool_max=pool_max),
        ]
    try:
        counted = statistics.read(conn, schema=schema)
    except errors.InsufficientPrivilege as error:
        raise forbidden(conn, schema) from error
    found += [
        *_of_migrations(conn, schema),
        *findings.of_messages(counted),
        *_of_horizon(conn, schema),
    ]
    return sorted(found, key=lambda finding: ORDER[finding.severity])


def _of_migrations(conn: psycopg.Connection, schema: str) -> list[Finding]:
    from psycopg import errors  # noqa: PLC0415 - slow

    from pgoutbox.database import migrate  # noqa: PLC0415 - slow
    from pgoutbox.database.findings import Finding  # noqa: PLC0415 - slow

    try:
        todo = migrate.pending(conn, schema=schema)
    except MigrationError as error:
        # Who may not look at the migrations may look at all else.
        if isinstance(error.__cause__, errors.InsufficientPrivilege):
            return []
        return [Finding(severity="problem", seen=str(error), do="See docs/operations.md.")]
    if not todo:
        return []
    names = ", ".join(migration.name for migration in todo)
    seen = f"the schema is older than this pgoutbox, and its workers wait for: {names}"
    return [Finding(severity="problem", seen=seen, do="pgoutbox migrate")]


def _of_horizon(conn: psycopg.Connection, schema: str) -> list[Finding]:
    from pgoutbox.database.findings import Finding  # noqa: PLC0415 - slow

    seen = horizon.look(conn, schema=schema)
    return [
        Finding(severity="warning", seen=f"{problem.field} {problem.rule}", do=problem.advice)
        for problem in horizon.warnings(seen.horizon)
    ]


def _say(findings: list[Finding]) -> None:
    for finding in findings:
        say(f"{finding.severity}: {finding.seen}")
        say(f"    {finding.do}")
    if not findings:
        say("nothing is wrong")
