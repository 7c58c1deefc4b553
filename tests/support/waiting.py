"""Proof that a session waits or that something is done, asked of the server, not slept for."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from tests.support.observing import eventually

if TYPE_CHECKING:
    import psycopg

PATIENCE = 20.0


def until_waiting(conn: psycopg.Connection[Any], pid: int, *, on: str) -> None:
    """Return once the session ``pid`` waits for a lock of type ``on`` (as in pg_locks)."""
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        waits = conn.execute(
            "SELECT FROM pg_locks WHERE pid = %s AND locktype = %s AND NOT granted", [pid, on]
        ).rowcount
        if waits:
            return
    raise AssertionError(f"session {pid} did not wait for a lock of type {on}")


def until_vacuumed(conn: psycopg.Connection[Any]) -> None:
    """Return once the counters tell of it; up to PostgreSQL 14 they come from another process."""

    def told() -> bool:
        question = "SELECT pg_stat_get_last_vacuum_time('outbox'::regclass)"
        return conn.execute(question).fetchone() != (None,)

    eventually(told, "the vacuum is counted")


def until_counted(conn: psycopg.Connection[Any], *, live: int) -> None:
    """Return once the counters tell of so many rows; a session tells them when it is idle."""

    def told() -> bool:
        question = "SELECT pg_stat_get_live_tuples('outbox'::regclass)"
        return conn.execute(question).fetchone() == (live,)

    eventually(told, f"{live} rows are counted")
