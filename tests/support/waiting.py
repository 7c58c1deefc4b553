"""Proof that a session waits or that something is done, asked of the server, not slept for."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

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


def eventually(condition: Callable[[], object], why: str) -> None:
    """Return once it holds: for what another process does to the database, which rings no bell."""
    deadline = time.monotonic() + PATIENCE
    pause = threading.Event()
    while not condition():
        assert time.monotonic() < deadline, f"not within {PATIENCE:g} s: {why}"
        pause.wait(0.02)
