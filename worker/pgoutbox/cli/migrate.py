"""``pgoutbox migrate``: create or update the outbox's tables, or print the SQL that does."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from pgoutbox.cli.connect import connect, dsn_option, schema_option, settings_for
from pgoutbox.cli.console import FAILURE, say

if TYPE_CHECKING:
    from pgoutbox.database.migrations import Migration
    from pgoutbox.settings import Settings


# Printing needs no database, and the settings are not complete without one.
NOWHERE = "host=localhost"


@click.command("migrate")
@dsn_option
@schema_option
@click.option("--check", is_flag=True, help="Only tell whether there is something to do.")
@click.option("--sql", "as_sql", is_flag=True, help="Print the SQL, for psql or another tool.")
@click.option(
    "--after",
    type=click.IntRange(min=0),
    metavar="VERSION",
    help="With --sql: only what is newer than this version.",
)
@click.option(
    "--roles", is_flag=True, help="Also make the roles of docs/operations.md and grant them rights."
)
def command(
    dsn: str | None,
    schema: str | None,
    *,
    check: bool,
    as_sql: bool,
    after: int | None,
    roles: bool,
) -> int:
    """Create or update the outbox's tables.

    Everything is done in one transaction, or nothing is. --check exits with 1 when there is
    something to do.
    """
    if as_sql and check:
        raise click.UsageError("--sql and --check exclude each other")
    if roles and check:
        raise click.UsageError("--roles and --check exclude each other")
    if after is not None and not as_sql:
        raise click.UsageError("--after goes with --sql")
    if as_sql:
        return _print(settings_for(dsn or NOWHERE, schema), after=after or 0, roles=roles)
    settings = settings_for(dsn, schema)
    return _check(settings) if check else _apply(settings, roles=roles)


def _print(settings: Settings, *, after: int, roles: bool) -> int:
    from pgoutbox.database.migrate import script  # noqa: PLC0415 - slow
    from pgoutbox.database.migrations import available  # noqa: PLC0415

    newest = available()[-1].version
    if after > newest:
        raise click.UsageError(f"there is no migration {after}; the newest is {newest}")
    say(script(settings.database.schema_name, after=after, roles=roles))
    return 0


def _apply(settings: Settings, *, roles: bool) -> int:
    from pgoutbox.database.migrate import apply  # noqa: PLC0415

    schema = settings.database.schema_name
    with connect(settings) as conn:
        applied = apply(conn, schema=schema, roles=roles)
    say(
        f'applied {_titles(applied)} to schema "{schema}"'
        if applied
        else f'schema "{schema}" is up to date'
    )
    if roles:
        say("the roles have their rights: GRANT them to logins, as in docs/operations.md")
    return 0


def _check(settings: Settings) -> int:
    from pgoutbox.database.migrate import pending  # noqa: PLC0415

    schema = settings.database.schema_name
    with connect(settings) as conn:
        missing = pending(conn, schema=schema)
    if not missing:
        say(f'schema "{schema}" is up to date')
        return 0
    say(f'schema "{schema}" lacks {_titles(missing)}: run `pgoutbox migrate`')
    return FAILURE


def _titles(migrations: list[Migration]) -> str:
    return ", ".join(migration.title for migration in migrations)
