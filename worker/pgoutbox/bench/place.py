"""A schema of the benchmark's own in some database, and how to fill it."""

from __future__ import annotations

import contextlib
import uuid
from typing import TYPE_CHECKING, Any, NamedTuple

import psycopg
from psycopg import sql
from psycopg.conninfo import make_conninfo

from pgoutbox.database.conninfo import DatabaseOptions, conninfo
from pgoutbox.database.migrate import apply

if TYPE_CHECKING:
    from collections.abc import Iterator

# The triggers and checks of an ordinary producer, all in one statement.
SEED = b"""
INSERT INTO outbox (aggregate_type, aggregate_id, event_type, body, content_type)
SELECT 'order', i::text, 'created', convert_to(repeat('x', %(size)s), 'UTF8'), 'text/plain'
  FROM generate_series(1, %(count)s::bigint) AS i
"""
EMPTY = b"TRUNCATE outbox"
SETTLE = b"VACUUM (ANALYZE) outbox"


class Place(NamedTuple):
    """Where the benchmark's tables are."""

    dsn: str
    schema: str

    @property
    def options(self) -> DatabaseOptions:
        """A worker's, with more patience: filling a table is one statement."""
        return DatabaseOptions(dsn=lambda: self.dsn, schema=self.schema, statement_timeout=600)

    def connect(self) -> psycopg.Connection[Any]:
        """An autocommit connection with the worker's session settings."""
        return psycopg.connect(conninfo(self.options, session_settings=True), autocommit=True)

    def connect_producer(self) -> psycopg.Connection[Any]:
        """An autocommit connection as an application's, which has none of those settings."""
        options = f"-c search_path={self.schema}"
        return psycopg.connect(make_conninfo(self.dsn, options=options), autocommit=True)

    def seed(self, count: int, size: int) -> None:
        """Replace whatever is there by ``count`` due messages of ``size`` bytes, and vacuum."""
        with self.connect() as conn:
            conn.execute(EMPTY)
            conn.execute(SEED, {"count": count, "size": size})
            conn.execute(SETTLE)


@contextlib.contextmanager
def place(dsn: str) -> Iterator[Place]:
    """A migrated schema in the database, dropped afterwards."""
    schema = f"pgoutbox_bench_{uuid.uuid4().hex[:8]}"
    try:
        with psycopg.connect(dsn) as conn:
            apply(conn, schema=schema)
        yield Place(dsn, schema)
    finally:
        with psycopg.connect(dsn, autocommit=True) as conn:
            conn.execute(sql.SQL("DROP SCHEMA IF EXISTS {} CASCADE").format(sql.Identifier(schema)))
