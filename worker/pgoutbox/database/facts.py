"""What a database says about itself, its outbox and this role. Only reads, and never for long."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import psycopg
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg.rows import class_row

from pgoutbox.database.migrations import Applied
from pgoutbox.database.probes import keeps_options, notification_arrives
from pgoutbox.database.retention import Archive, read_archive

if TYPE_CHECKING:
    from collections.abc import Sequence

CONNECT_TIMEOUT = 5

# Inside the transaction, since a pooler forgets what was set outside of it.
_LOCAL_SETTINGS = b"""
SELECT set_config('search_path', %(search_path)s, true), set_config('statement_timeout', '5s', true)
"""

_SERVER = b"""
SELECT current_setting('server_version_num')::int AS version,
       current_setting('server_encoding') AS encoding,
       pg_is_in_recovery() AS in_recovery,
       current_setting('default_transaction_read_only')::bool AS read_only,
       current_setting('default_transaction_isolation') AS isolation,
       current_user::text AS role,
       current_setting('max_connections')::int
         - current_setting('superuser_reserved_connections')::int
         - coalesce(current_setting('reserved_connections', true)::int, 0) AS connections,
       (SELECT count(*) FROM pg_stat_activity
         WHERE backend_type = 'client backend')::int AS connected
"""

# Everything that a worker does, by name in the catalog: without USAGE on the schema, a name that
# is resolved by the parser is an error. Rights may have been granted column by column.
_MISSING_RIGHTS = b"""
WITH tables AS (
    SELECT c.oid, c.relname::text AS name
      FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
     WHERE n.nspname = %(schema)s AND c.relkind IN ('r', 'p')
), wanted(name, privilege, columns) AS (VALUES
    ('outbox', 'SELECT', NULL),
    ('outbox', 'UPDATE', ARRAY['status', 'attempts', 'reclaims', 'available_at', 'pending_since',
               'lease_owner', 'lease_until', 'lease_version', 'last_error', 'done_at']),
    ('outbox', 'DELETE', NULL),
    ('outbox_wakeup', 'SELECT', NULL),
    ('outbox_wakeup', 'UPDATE', ARRAY['wanted', 'changed_at']),
    ('outbox_workers', 'SELECT', NULL),
    ('outbox_workers', 'INSERT', NULL),
    ('outbox_workers', 'UPDATE', NULL),
    ('outbox_workers', 'DELETE', NULL),
    ('outbox_migrations', 'SELECT', NULL)
)
SELECT 'USAGE on schema ' || nspname FROM pg_namespace
 WHERE nspname = %(schema)s AND NOT has_schema_privilege(oid, 'USAGE')
UNION ALL
SELECT w.privilege || ' on ' || w.name
  FROM wanted w JOIN tables t USING (name)
 WHERE NOT has_table_privilege(t.oid, w.privilege)
   AND (w.privilege = 'DELETE' OR EXISTS (
        SELECT FROM pg_attribute a
         WHERE a.attrelid = t.oid AND a.attnum > 0 AND NOT a.attisdropped
           AND a.attname = ANY (coalesce(w.columns, ARRAY[a.attname::text]))
           AND NOT has_column_privilege(t.oid, a.attnum, w.privilege)))
UNION ALL
SELECT 'EXECUTE on ' || p.proname
  FROM pg_proc p JOIN pg_namespace n ON n.oid = p.pronamespace
 WHERE n.nspname = %(schema)s AND p.proname = 'outbox_archive_partitions'
   AND NOT has_function_privilege(p.oid, 'EXECUTE')
"""

_HAS_MIGRATIONS = b"""
SELECT EXISTS (SELECT FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
                WHERE n.nspname = %(schema)s AND c.relname = 'outbox_migrations')
"""

_APPLIED = b"SELECT version, name, checksum FROM outbox_migrations ORDER BY version"

# In this order: whatever is committed between the two only moves the sequence further ahead.
_NEWEST_ID = b"SELECT coalesce(max(id), 0) FROM outbox"
_SEQUENCE = b"""
SELECT coalesce(pg_sequence_last_value(s.oid), 0)
  FROM pg_class s JOIN pg_namespace n ON n.oid = s.relnamespace
 WHERE n.nspname = %(schema)s AND s.relname = 'outbox_id_seq'
   AND has_sequence_privilege(s.oid, 'USAGE, SELECT')
"""

# From name to name through outbox_pending, however many rows each has.
_OWED = b"""
WITH RECURSIVE names AS (
    (SELECT destination FROM outbox WHERE pending_since IS NOT NULL ORDER BY destination LIMIT 1)
    UNION ALL
    SELECT (SELECT o.destination FROM outbox o
             WHERE o.pending_since IS NOT NULL AND o.destination > n.destination
             ORDER BY o.destination LIMIT 1)
      FROM names n WHERE n.destination IS NOT NULL
)
SELECT destination FROM names WHERE destination IS NOT NULL LIMIT 100
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Server:
    """The server as this role sees it."""

    version: int
    """As in ``server_version_num``: 180006."""
    encoding: str
    in_recovery: bool
    read_only: bool
    isolation: str
    role: str
    connections: int
    """How many clients may be connected, those reserved for administrators apart."""
    connected: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """Everything that `pgoutbox.database.checks` judges."""

    server: Server
    applied: Sequence[Applied]
    missing_rights: Sequence[str]
    newest_id: int | None
    """None where this role may not look."""
    sequence: int | None
    owed: Sequence[str]
    """Destinations that messages are owed to."""
    keeps_options: bool
    """False behind a pooler that refuses or drops start-up options."""
    notified: bool
    """Whether a notification reached a connection that listens."""
    archive: Archive | None = None
    """None where this role may not look, or the schema is older than the archive."""


def connect(dsn: str) -> psycopg.Connection[Any]:
    """A connection for a few questions. Raises psycopg.OperationalError within seconds."""
    return psycopg.connect(_soon(dsn), autocommit=True, prepare_threshold=None)


def _soon(dsn: str) -> str:
    given: dict[str, Any] = conninfo_to_dict(dsn)
    return make_conninfo("", **({"connect_timeout": CONNECT_TIMEOUT} | given))


def read_facts(dsn: str, listen_dsn: str, *, schema: str) -> Facts:
    """Ask the database everything. Raises psycopg.Error when it cannot be asked.

    Not from within an event loop.
    """
    with connect(dsn) as conn, conn.transaction():
        search_path = f"{sql.Identifier(schema).as_string()}, pg_temp"
        conn.execute(_LOCAL_SETTINGS, {"search_path": search_path})
        server = conn.cursor(row_factory=class_row(Server)).execute(_SERVER).fetchone()
        assert server is not None  # noqa: S101 - a SELECT without FROM has one row
        missing = [row[0] for row in conn.execute(_MISSING_RIGHTS, {"schema": schema})]
        applied = _applied(conn, schema, missing)
        readable = bool(applied) and not _needed_to_read(missing, "outbox")
        newest = conn.execute(_NEWEST_ID).fetchone() if readable else None
        sequence = conn.execute(_SEQUENCE, {"schema": schema}).fetchone()
        owed = [row[0] for row in conn.execute(_OWED)] if readable else []
        archive = _archive(conn, schema) if readable else None
    kept, notified = asyncio.run(_probed(dsn, listen_dsn))
    return Facts(
        server=server,
        applied=applied,
        missing_rights=missing,
        newest_id=newest[0] if newest else None,
        sequence=sequence[0] if sequence else None,
        owed=owed,
        keeps_options=kept,
        notified=notified,
        archive=archive,
    )


async def _probed(dsn: str, listen_dsn: str) -> tuple[bool, bool]:
    return await keeps_options(_soon(dsn)), await notification_arrives(_soon(listen_dsn))


def _applied(
    conn: psycopg.Connection[Any], schema: str, missing: Sequence[str]
) -> Sequence[Applied]:
    found = conn.execute(_HAS_MIGRATIONS, {"schema": schema}).fetchone()
    if found != (True,) or _needed_to_read(missing, "outbox_migrations"):
        return ()
    return conn.cursor(row_factory=class_row(Applied)).execute(_APPLIED).fetchall()


def _archive(conn: psycopg.Connection[Any], schema: str) -> Archive | None:
    try:
        with conn.transaction():
            return read_archive(conn, schema=schema)
    except psycopg.ProgrammingError:
        return None


def _needed_to_read(missing: Sequence[str], table: str) -> bool:
    return any(right == f"SELECT on {table}" or right.startswith("USAGE") for right in missing)
