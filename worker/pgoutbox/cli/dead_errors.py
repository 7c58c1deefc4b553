"""What keeps a person from deciding about dead letters, in sentences."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

import click

from pgoutbox.errors import MigrationError, PgOutboxError

if TYPE_CHECKING:
    from collections.abc import Iterator

    import psycopg

GRANTS = """\
GRANT SELECT, UPDATE (status, attempts, reclaims, lease_version, pending_since, available_at,\
 done_at, ordering_key) ON {schema}.outbox TO {role};\
 GRANT SELECT, INSERT (action, reason, outbox_id, message_id, destination, details)\
 ON {schema}.outbox_audit TO {role};\
 GRANT EXECUTE ON FUNCTION {schema}.outbox_discard(bigint[], text) TO {role}"""


@contextlib.contextmanager
def explained(
    conn: psycopg.Connection,
    schema: str,
    *,
    doing: str = "decide about dead messages",
    grants: str = GRANTS,
) -> Iterator[None]:
    """Turn what the server refuses into what to do about it. Raises PgOutboxError, UsageError."""
    from psycopg import errors  # noqa: PLC0415 - slow

    try:
        yield
    except errors.UndefinedTable as error:
        raise MigrationError(
            f'this role sees no outbox in schema "{schema}" of this database: run'
            " `pgoutbox migrate`, or ask the owner for USAGE on the schema"
        ) from error
    except errors.UndefinedFunction as error:
        raise MigrationError(
            f'the outbox in schema "{schema}" is older than this command, and nothing was done:'
            " run `pgoutbox migrate`"
        ) from error
    except errors.InsufficientPrivilege as error:
        raise _forbidden(conn, schema, doing, grants) from error
    except (
        errors.InvalidDatetimeFormat,
        errors.DatetimeFieldOverflow,
        errors.IntervalFieldOverflow,
    ) as error:
        raise click.UsageError(
            f"{error.diag.message_primary}: times are as in 90s, 30m, 2h, 3d or '1 week', moments"
            " as in '2026-01-31 12:00+00'"
        ) from error


def _forbidden(conn: psycopg.Connection, schema: str, doing: str, grants: str) -> PgOutboxError:
    from psycopg import sql  # noqa: PLC0415 - slow

    role, within = (sql.Identifier(name).as_string() for name in (conn.info.user, schema))
    member = "outbox_desk" if grants is GRANTS else "outbox_dispatcher"
    return PgOutboxError(
        f'this role may not {doing} in schema "{schema}", and nothing was done:'
        f" become a member of {member}, or ask the owner for"
        f" {grants.format(schema=within, role=role)}"
    )
