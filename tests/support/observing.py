"""What a test sees of the outbox from outside, while workers work."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import psycopg

if TYPE_CHECKING:
    from collections.abc import Callable

Conn = psycopg.Connection[tuple[Any, ...]]

PATIENCE = 30.0

RECLAIM, CLAIM, FINALIZE = "innocent|late.ordering_key", "picked", "decided"
"""Regular expressions for what only these statements say, in the first kilobyte that is shown."""


def rows(conn: Conn, columns: str) -> list[tuple[Any, ...]]:
    """Some columns of all messages, by id."""
    statement = f"SELECT {columns} FROM outbox ORDER BY id"  # noqa: S608 - the test's own text
    return conn.execute(statement.encode()).fetchall()


def count(conn: Conn, condition: str) -> int:
    """How many messages satisfy it."""
    statement = f"SELECT count(*) FROM outbox WHERE {condition}"  # noqa: S608 - as above
    found = conn.execute(statement.encode()).fetchone()
    assert found is not None
    number: int = found[0]
    return number


def until_a_statement_waits(conn: Conn, pattern: str) -> None:
    """Return once a statement of a worker that matches the regular expression waits for a lock."""
    eventually(lambda: is_waiting(conn, pattern), f"a statement like {pattern!r} that waits")


def is_waiting(conn: Conn, pattern: str) -> bool:
    """Whether such a statement waits for a lock at the moment."""
    query = (
        "SELECT FROM pg_stat_activity WHERE datname = current_database()"
        " AND wait_event_type = 'Lock' AND query ~ %s"
    )
    return bool(conn.execute(query, [pattern]).rowcount)


def eventually(
    condition: Callable[[], bool], why: str, patience: float = PATIENCE, *, every: float = 0.01
) -> float:
    """Ask until it is true, with ``every`` seconds between; the seconds that it took."""
    began = time.monotonic()
    while time.monotonic() - began < patience:
        if condition():
            return time.monotonic() - began
        time.sleep(every)
    raise AssertionError(f"not within {patience:g} s: {why}")
