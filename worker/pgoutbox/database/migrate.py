"""Runs the migrations: in one transaction, under an advisory lock, all of them or none."""

from __future__ import annotations

from typing import Any

import psycopg
from psycopg import errors, sql
from psycopg.pq import TransactionStatus
from psycopg.rows import class_row, tuple_row

from pgoutbox._version import __version__
from pgoutbox.database.migrations import (
    Applied,
    Migration,
    available,
    check_schema_name,
    check_server,
    judge,
    roles as roles_text,
    unapplied,
)
from pgoutbox.errors import MigrationError


def apply(conn: psycopg.Connection[Any], *, schema: str, roles: bool = False) -> list[Migration]:
    """Bring ``schema`` up to date, creating it where it is missing; return what was applied.

    ``roles``: also make the roles of ``roles.sql`` and grant them their rights, as is done in any
    case where they were there before. All of it commits or nothing does. A second caller waits for
    the first and finds nothing to do. The connection must be outside a transaction. Raises
    MigrationError.
    """
    check_schema_name(schema)
    if conn.info.transaction_status != TransactionStatus.IDLE:
        raise MigrationError("migrate needs a connection outside a transaction: commit first")
    _check_server(conn)
    try:
        with conn.transaction():
            _take_turn(conn)
            conn.execute(_enter(schema))
            conn.execute(_AS_OWNER)
            done = _run_all(conn, unapplied(available(), _read(conn, schema), schema=schema))
            if roles or _has_roles(conn):
                _grant(conn)
            return done
    except errors.InsufficientPrivilege as error:
        raise MigrationError(
            f'this role may not migrate schema "{schema}" ({_said(error)}): '
            "use the role that owns the schema, or one that may create it, and where outbox_owner"
            " owns the tables one of its members"
        ) from error


def pending(conn: psycopg.Connection[Any], *, schema: str) -> list[Migration]:
    """What `apply` would apply. Only reads. Raises MigrationError where `apply` would refuse."""
    check_schema_name(schema)
    _check_server(conn)
    return unapplied(available(), _read(conn, schema), schema=schema)


async def verify(conn: psycopg.AsyncConnection[Any], *, schema: str) -> None:
    """Raise MigrationError unless this version can work on ``schema``. Only reads.

    A newer schema is accepted: pods of two versions share it during a rollout.
    """
    check_schema_name(schema)
    try:
        async with conn.transaction(), conn.cursor(row_factory=class_row(Applied)) as cursor:
            await cursor.execute(_recorded(schema))
            applied = await cursor.fetchall()
    except errors.UndefinedTable:
        applied = []
    except errors.InsufficientPrivilege as error:
        raise _unreadable(schema, error) from error
    judge(available(), applied, schema=schema)


def script(schema: str, *, after: int = 0, roles: bool = False) -> str:
    """The same statements for other tools: every migration above version ``after``."""
    check_schema_name(schema)
    chosen = [migration for migration in available() if migration.version > after]
    parts = [_TITLE.format(version=__version__, schema=schema), "BEGIN;\n", _TAKE_TURN]
    parts += [_enter(schema).as_string(), _AS_OWNER.decode(), _BOOKKEEPING]
    for migration in chosen:
        parts += [f"-- {migration.title}\n", migration.text, _record(migration).as_string()]
    if roles:
        parts += ["RESET ROLE;\n", roles_text()]
    return "\n".join([*parts, "COMMIT;\n"])


# Whatever the role's defaults are. Under repeatable read the snapshot would be older than the wait
# for the advisory lock, and what the other migration did would be invisible. The lock's number is
# "pgoutbox" in ASCII. A table lock is waited for briefly: all who come later wait behind it.
_TAKE_TURN = """\
SET TRANSACTION ISOLATION LEVEL READ COMMITTED, READ WRITE;
SET LOCAL standard_conforming_strings = on;
SET LOCAL statement_timeout = 0;
SET LOCAL lock_timeout = '5min';
SELECT pg_advisory_xact_lock(x'70676f7574626f78'::bigint);
SET LOCAL lock_timeout = '5s';
"""

# Whoever is its member may migrate, and what they make shall be its own like all the rest.
_AS_OWNER = b"""\
DO $$ BEGIN
    IF (SELECT pg_get_userbyid(relowner) = 'outbox_owner'
          FROM pg_class WHERE oid = to_regclass('outbox')) THEN
        SET LOCAL ROLE outbox_owner;
    END IF;
END $$;
"""

_BOOKKEEPING = """\
CREATE TABLE IF NOT EXISTS outbox_migrations (
    version    integer     PRIMARY KEY,
    name       text        NOT NULL,
    checksum   text        NOT NULL,
    applied_at timestamptz NOT NULL DEFAULT now(),
    applied_by text        NOT NULL DEFAULT session_user
);
"""

_TITLE = """\
-- pgoutbox {version}: the outbox's tables in schema "{schema}", in one transaction.
-- A tool that opens its own transaction must not run the lines BEGIN and COMMIT."""


def _enter(schema: str) -> sql.Composed:
    # Asked first: CREATE SCHEMA IF NOT EXISTS wants the right to create it even where it exists.
    # pg_temp comes last, or a caller's temporary table could stand in for one of ours.
    return sql.SQL("""\
DO $$ BEGIN
    IF NOT EXISTS (SELECT FROM pg_namespace WHERE nspname = {literal}) THEN
        CREATE SCHEMA {name};
    END IF;
END $$;
SET LOCAL search_path = {name}, pg_temp;
""").format(literal=sql.Literal(schema), name=sql.Identifier(schema))


def _record(migration: Migration) -> sql.Composed:
    return sql.SQL("""\
INSERT INTO outbox_migrations (version, name, checksum)
VALUES ({}, {}, {});
""").format(migration.version, migration.name, migration.checksum)


def _recorded(schema: str) -> sql.Composed:
    return sql.SQL("SELECT version, name, checksum FROM {} ORDER BY version").format(
        sql.Identifier(schema, "outbox_migrations")
    )


def _check_server(conn: psycopg.Connection[Any]) -> None:
    with conn.transaction(), conn.cursor(row_factory=tuple_row) as cursor:
        cursor.execute("""
            SELECT current_setting('server_version_num')::int, current_setting('server_encoding')
        """)
        version, encoding = cursor.fetchone() or (0, "")
    check_server(version, encoding)


def _take_turn(conn: psycopg.Connection[Any]) -> None:
    try:
        conn.execute(_TAKE_TURN.encode())
    except errors.LockNotAvailable as error:
        raise MigrationError(
            "another migration of this database has been running for five minutes: "
            "look at pg_stat_activity, and try again when it has ended"
        ) from error
    except (errors.FeatureNotSupported, errors.ReadOnlySqlTransaction) as error:
        raise MigrationError(
            f"this server takes no writes ({_said(error)}): connect to the primary"
        ) from error


def _read(conn: psycopg.Connection[Any], schema: str) -> list[Applied]:
    try:
        with conn.transaction(), conn.cursor(row_factory=class_row(Applied)) as cursor:
            return cursor.execute(_recorded(schema)).fetchall()
    except errors.UndefinedTable:
        return []
    except errors.InsufficientPrivilege as error:
        raise _unreadable(schema, error) from error


def _unreadable(schema: str, error: psycopg.Error) -> MigrationError:
    return MigrationError(
        f"this role cannot read the outbox's version ({_said(error)}): "
        f"GRANT USAGE ON SCHEMA {schema}, GRANT SELECT ON {schema}.outbox_migrations; "
        "whoever migrates has to be a member of the role that owns them"
    )


def _run_all(conn: psycopg.Connection[Any], todo: list[Migration]) -> list[Migration]:
    if todo:
        conn.execute(_BOOKKEEPING.encode())
    for migration in todo:
        _run(conn, migration)
    return todo


def _has_roles(conn: psycopg.Connection[Any]) -> bool:
    return conn.execute("SELECT current_user = 'outbox_owner'").fetchone() == (True,)


def _grant(conn: psycopg.Connection[Any]) -> None:
    try:
        conn.execute("RESET ROLE")
        conn.execute(roles_text().encode())
    except (errors.LockNotAvailable, errors.DeadlockDetected) as error:
        raise MigrationError(
            "the tables were in use for more than five seconds and nothing was changed"
            f" ({_said(error)}): try again when no long transaction holds them"
        ) from error
    except errors.InsufficientPrivilege as error:
        raise MigrationError(
            f"this role may not make the roles ({_said(error)}): it needs CREATEROLE and has to own"
            " the tables, or where another outbox on this server has made them already, somebody"
            f" has to GRANT outbox_owner TO {conn.info.user}"
        ) from error


def _run(conn: psycopg.Connection[Any], migration: Migration) -> None:
    failed = f"{migration.title}.sql failed and nothing was changed"
    try:
        conn.execute(migration.text.encode())
        conn.execute(_record(migration))
    except errors.LockNotAvailable as error:
        raise MigrationError(
            f"{failed}: a table was in use for more than five seconds "
            f"({_said(error)}): try again when no long transaction holds it"
        ) from error
    except (errors.DuplicateTable, errors.DuplicateFunction) as error:
        raise MigrationError(
            f"{failed}: {_said(error)}, but outbox_migrations does not list this file: "
            "choose an empty schema, or remove what was made by hand"
        ) from error
    except errors.InsufficientPrivilege:
        raise
    except psycopg.Error as error:
        raise MigrationError(f"{failed}: {_said(error)}") from error


def _said(error: psycopg.Error) -> str:
    return error.diag.message_primary or str(error)
