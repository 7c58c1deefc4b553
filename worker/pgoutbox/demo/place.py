"""A schema of the demo's own: the outbox, the shop's table and the consumer's table."""

from __future__ import annotations

import contextlib
import uuid
from typing import TYPE_CHECKING, Any, NamedTuple

import psycopg
from psycopg import sql

from pgoutbox.database.conninfo import DatabaseOptions, conninfo
from pgoutbox.database.migrate import apply

if TYPE_CHECKING:
    from collections.abc import Iterator

CONNECT_TIMEOUT = 10

# No key on the shipments' message: if the inbox let a message through twice, it would show.
TABLES = b"""
CREATE TABLE orders (
    id      integer PRIMARY KEY,
    article text    NOT NULL,
    address text
);
CREATE TABLE shipments (
    message_id uuid        NOT NULL,
    order_id   integer     NOT NULL,
    booked_at  timestamptz NOT NULL DEFAULT now()
);
"""


class Place(NamedTuple):
    """Where the demo's tables are."""

    dsn: str
    schema: str

    @property
    def conninfo(self) -> str:
        """For connections that find the tables without naming the schema."""
        options = DatabaseOptions(dsn=lambda: self.dsn, schema=self.schema)
        return conninfo(options, session_settings=True)

    def connect(self) -> psycopg.Connection[Any]:
        """An autocommit connection, as an application has it."""
        return psycopg.connect(self.conninfo, autocommit=True)


@contextlib.contextmanager
def place(dsn: str) -> Iterator[Place]:
    """A schema with all tables in the database, dropped afterwards."""
    schema = f"pgoutbox_demo_{uuid.uuid4().hex[:8]}"
    found = Place(dsn, schema)
    try:
        with psycopg.connect(dsn, connect_timeout=CONNECT_TIMEOUT) as conn:
            apply(conn, schema=schema)
        with found.connect() as conn:
            conn.execute(TABLES)
        yield found
    except BaseException:
        # What went wrong first is what is told.
        with contextlib.suppress(psycopg.Error):
            _drop(found)
        raise
    _drop(found)


def _drop(found: Place) -> None:
    name = sql.Identifier(found.schema)
    with psycopg.connect(found.dsn, connect_timeout=CONNECT_TIMEOUT, autocommit=True) as conn:
        conn.execute(sql.SQL("DROP SCHEMA IF EXISTS {} CASCADE").format(name))
