"""Proof that one session waits for another, asked of the server instead of slept for."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

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
