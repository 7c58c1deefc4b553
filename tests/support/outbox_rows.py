"""Rows as any producer could write them: plain INSERTs with chosen columns."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from psycopg import sql
from psycopg.types.json import Jsonb

if TYPE_CHECKING:
    import psycopg

PLAIN: dict[str, Any] = {
    "aggregate_type": "order",
    "aggregate_id": "o-1",
    "event_type": "order_paid",
    "payload": Jsonb({"total": 1}),
}


def insert(conn: psycopg.Connection[Any], **columns: object) -> int:
    """Insert one message, `PLAIN` apart from ``columns``; return its id."""
    row = insert_into(conn, "outbox", **PLAIN | columns)
    number: int = row["id"]
    return number


def insert_into(conn: psycopg.Connection[Any], table: str, **columns: object) -> dict[str, Any]:
    """Insert one row; return it with what the database filled in."""
    statement = sql.SQL("INSERT INTO {} ({}) VALUES ({}) RETURNING to_jsonb({})").format(
        sql.Identifier(table),
        sql.SQL(", ").join(map(sql.Identifier, columns)),
        sql.SQL(", ").join(sql.Placeholder() * len(columns)),
        sql.Identifier(table),
    )
    found = conn.execute(statement, list(columns.values())).fetchone()
    assert found is not None
    row: dict[str, Any] = found[0]
    return row


def fill(conn: psycopg.Connection[Any], count: int, **expressions: str) -> None:
    """Insert ``count`` messages at once; ``expressions`` are SQL and may use their number ``g``."""
    columns = {
        "aggregate_type": "'bulk'",
        "aggregate_id": "g::text",
        "event_type": "'e'",
        "payload": "'{}'",
    } | expressions
    statement = (
        f"INSERT INTO outbox ({', '.join(columns)}) "  # noqa: S608 - the test's own text
        f"SELECT {', '.join(columns.values())} FROM generate_series(1, {count}) g"
    )
    conn.execute(statement.encode())
