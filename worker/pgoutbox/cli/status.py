"""``pgoutbox status``: what is waiting, for how long, and who works on it."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, NamedTuple

import click

from pgoutbox.cli import horizon
from pgoutbox.cli.connect import connect, dsn_option, schema_option, settings_for
from pgoutbox.cli.console import say_json
from pgoutbox.errors import MigrationError, PgOutboxError

if TYPE_CHECKING:
    from collections.abc import Mapping

    import psycopg

    from pgoutbox.cli.horizon import Seen
    from pgoutbox.database.statistics import Statistics
    from pgoutbox.database.upkeep import Upkeep

SEEN_WITHIN = 60.0
"""Seconds after its last heartbeat for which a worker counts as alive."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Status:
    """One look at the outbox."""

    schema: str
    statistics: Statistics
    attempts: Mapping[str, Mapping[int, int]] | None
    """Undelivered messages by attempts, per destination. None where the role may not read rows."""
    blocking: Mapping[str, list[int]] | None = None
    """The ids of dead messages that block their lanes, oldest first. None as above."""
    newest_dead: Mapping[str, list[int]] | None = None
    """The ids of dead messages, blocking or not, newest first. None as above."""
    seen: Seen
    """Of the xmin horizon."""
    upkeep: Upkeep | None = None
    """Row versions of the table, and when vacuum last came by."""

    @property
    def unserved(self) -> list[str]:
        """Destinations whose messages nobody is going to claim."""
        return self.statistics.unserved(within=SEEN_WITHIN)


class Messages(NamedTuple):
    """What takes the right to read rows; as in `Status`."""

    attempts: Mapping[str, Mapping[int, int]] | None
    blocking: Mapping[str, list[int]] | None
    newest_dead: Mapping[str, list[int]] | None


@click.command("status")
@dsn_option
@schema_option
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@click.option(
    "--watch",
    metavar="[SECONDS]",
    type=click.FloatRange(0.1, 3600),
    is_flag=False,
    flag_value=2.0,
    help="Again and again, every 2 seconds or so many, until Ctrl-C.",
)
def command(dsn: str | None, schema: str | None, *, as_json: bool, watch: float | None) -> None:
    """Show backlog, ages, attempts and workers.

    Counts stop at 10000, so the answer is quick however much is stored.
    """
    settings = settings_for(dsn, schema)
    if watch is not None:
        from pgoutbox.cli.status_watch import watch as go_on  # noqa: PLC0415 - rarely

        go_on(settings, every=watch, as_json=as_json)
        return
    with connect(settings) as conn:
        status = look(conn, schema=settings.database.schema_name)
    if as_json:
        say_json(as_object(status))
    else:
        from pgoutbox.cli.status_view import show  # noqa: PLC0415 - for people only

        show(status)
        horizon.show(status.seen)


def look(conn: psycopg.Connection, *, schema: str) -> Status:
    """Read everything in one snapshot.

    Raises MigrationError where there is no outbox, PgOutboxError where this role may not look.
    """
    from psycopg import errors  # noqa: PLC0415 - slow

    try:
        return _look(conn, schema)
    except (errors.UndefinedFunction, errors.InvalidSchemaName) as error:
        raise MigrationError(
            f'there is no outbox in schema "{schema}" of this database: run `pgoutbox migrate`'
        ) from error
    except errors.InsufficientPrivilege as error:
        raise forbidden(conn, schema) from error


def _look(conn: psycopg.Connection, schema: str) -> Status:
    from pgoutbox.database import upkeep  # noqa: PLC0415 - slow
    from pgoutbox.database.statistics import read  # noqa: PLC0415

    with conn.transaction():
        conn.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
        conn.execute("SET LOCAL statement_timeout = '10s'")
        statistics = read(conn, schema=schema)
        attempts, blocking, newest = _messages(conn, schema, list(statistics.destinations))
        seen = horizon.look(conn, schema=schema)
        kept = upkeep.read(conn, schema=schema)
    return Status(
        schema=schema,
        statistics=statistics,
        attempts=attempts,
        blocking=blocking,
        newest_dead=newest,
        seen=seen,
        upkeep=kept,
    )


def forbidden(conn: psycopg.Connection, schema: str) -> PgOutboxError:
    """What a role lacks that may not ask for the counts."""
    from psycopg import sql  # noqa: PLC0415 - slow

    asked = conn.execute("SELECT current_user, has_schema_privilege(%s, 'USAGE')", [schema])
    role, enters = asked.fetchone() or ("", False)
    to, within = (sql.Identifier(name).as_string() for name in (role, schema))
    grants = [] if enters else [f"GRANT USAGE ON SCHEMA {within} TO {to}"]
    grants.append(f"GRANT EXECUTE ON FUNCTION {within}.outbox_stats(integer) TO {to}")
    return PgOutboxError(
        f'this role may not read the counts in schema "{schema}": ask the owner for'
        f" {' and '.join(grants)}"
    )


def as_object(status: Status) -> dict[str, object]:
    """For --json. Its keys are public."""
    found = asdict(status.statistics)
    return {
        "schema": status.schema,
        **found,
        "attempts": status.attempts,
        "blocking": status.blocking,
        "newest_dead": status.newest_dead,
        "unserved": status.unserved,
        "horizon": horizon.as_object(status.seen.horizon),
        "table": None if status.upkeep is None else asdict(status.upkeep),
    }


def _messages(conn: psycopg.Connection, schema: str, destinations: list[str]) -> Messages:
    """What a role without the right to read the messages does not see."""
    from psycopg.errors import InsufficientPrivilege  # noqa: PLC0415

    from pgoutbox.database.statistics import (  # noqa: PLC0415
        attempts_histogram,
        blocking,
        newest_dead,
    )

    try:
        with conn.transaction():
            return Messages(
                attempts_histogram(conn, schema=schema, destinations=destinations),
                blocking(conn, schema=schema, destinations=destinations),
                newest_dead(conn, schema=schema, destinations=destinations),
            )
    except InsufficientPrivilege:
        return Messages(None, None, None)
