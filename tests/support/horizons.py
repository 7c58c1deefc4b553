"""Ways to hold back the xmin horizon, each for the length of a block."""

from __future__ import annotations

import struct
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import psycopg
from psycopg.conninfo import make_conninfo
from psycopg.pq import ExecStatus

if TYPE_CHECKING:
    from collections.abc import Iterator

PATIENCE = 20.0

BURN = b"""
DO $$ BEGIN FOR i IN 1..200 LOOP PERFORM pg_current_xact_id(); COMMIT; END LOOP; END $$
"""


def pass_transactions(conn: psycopg.Connection[Any]) -> None:
    """Let two hundred transactions come and go."""
    conn.execute(BURN)


@contextmanager
def held_snapshot(dsn: str, application: str = "report") -> Iterator[psycopg.Connection[Any]]:
    """A session that keeps its snapshot, idle in its transaction."""
    with psycopg.connect(dsn, application_name=application) as conn:
        conn.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        conn.execute("SELECT 1")
        yield conn
        conn.rollback()


@contextmanager
def standby(
    dsn: str, *, slot: str = "", xmin: int = 0, catalog_xmin: int = 0
) -> Iterator[psycopg.Connection[Any]]:
    """What a standby with hot_standby_feedback is to its primary, without the standby."""
    address = make_conninfo(dsn, replication="true", application_name="standby")
    # Not its own context manager: that would want to commit, in the middle of the stream.
    walsender = psycopg.connect(address, autocommit=True)
    try:
        _replicate(walsender, _flushed(dsn), slot)
        feedback = struct.pack("!cqIIII", b"h", 0, xmin, 0, catalog_xmin, 0)
        walsender.pgconn.put_copy_data(feedback)
        walsender.pgconn.flush()
        yield walsender
    finally:
        walsender.close()


@contextmanager
def copying(dsn: str) -> Iterator[psycopg.Connection[Any]]:
    """What a new subscriber is while it copies its tables: a walsender with a snapshot."""
    with psycopg.connect(make_conninfo(dsn, replication="database"), autocommit=True) as walsender:
        begun = walsender.pgconn.exec_(b"BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT 1")
        assert begun.status == ExecStatus.TUPLES_OK, begun.error_message
        yield walsender
        walsender.pgconn.exec_(b"ROLLBACK")


@contextmanager
def physical_slot(dsn: str, name: str) -> Iterator[str]:
    """A slot, dropped afterwards."""
    with psycopg.connect(dsn, autocommit=True) as conn:
        conn.execute("SELECT pg_create_physical_replication_slot(%s, true)", [name])
        try:
            yield name
        finally:
            _until_free(conn, name)
            conn.execute("SELECT pg_drop_replication_slot(%s)", [name])


def next_xid(conn: psycopg.Connection[Any]) -> int:
    """The transaction id that comes next, without its epoch."""
    found = conn.execute("SELECT pg_snapshot_xmax(pg_current_snapshot())::text::bigint").fetchone()
    assert found is not None
    number: int = found[0] % 2**32
    return number


def _replicate(walsender: psycopg.Connection[Any], lsn: str, slot: str) -> None:
    raw = walsender.pgconn
    raw.send_query(f"START_REPLICATION {slot and f'SLOT {slot}'} PHYSICAL {lsn}".encode())
    while raw.is_busy():
        raw.consume_input()
    answer = raw.get_result()
    assert answer is not None
    assert answer.status == ExecStatus.COPY_BOTH, answer.error_message


def _flushed(dsn: str) -> str:
    with psycopg.connect(dsn, autocommit=True) as conn:
        found = conn.execute("SELECT pg_current_wal_flush_lsn()::text").fetchone()
    assert found is not None
    lsn: str = found[0]
    return lsn


def _until_free(conn: psycopg.Connection[Any], name: str) -> None:
    deadline = time.monotonic() + PATIENCE
    query = "SELECT FROM pg_replication_slots WHERE slot_name = %s AND active"
    while conn.execute(query, [name]).rowcount:
        assert time.monotonic() < deadline, f"the slot {name} stays in use"
