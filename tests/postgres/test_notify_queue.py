"""Producers who wait for each other to notify.

A commit that waits for a standby which does not exist keeps the server's lock for notifications.
"""

from __future__ import annotations

import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING

import psycopg
import pytest

from pgoutbox.database.migrate import apply
from pgoutbox.demo.embedded import EmbeddedServer
from pgoutbox.dispatch import loudness
from pgoutbox.dispatch.wakeup import QUEUED
from pgoutbox.events import WakeupModeChanged
from tests.support.dispatching import Scripted, database, dispatching, eventually, to, until_true
from tests.support.outbox_rows import insert
from tests.support.postgres import FAST
from tests.support.roles import login_role
from tests.support.waiting import PATIENCE, until_waiting

if TYPE_CHECKING:
    from collections.abc import Iterator

WRITERS = 8
WANTED = b"SELECT wanted FROM outbox_wakeup"
NOT_WANTED = b"SELECT NOT wanted FROM outbox_wakeup"
NO_SUCH_STANDBY = {"synchronous_standby_names": "nobody"}


@pytest.fixture(scope="module")
def dsn() -> Iterator[str]:
    """The outbox on a server of its own."""
    server = EmbeddedServer(settings=FAST | NO_SUCH_STANDBY)
    try:
        server.start()
        with psycopg.connect(server.dsn) as conn:
            apply(conn, schema="public")
        yield server.dsn
    finally:
        server.remove()


class Writer(threading.Thread):
    """Inserts one message in a session of its own."""

    def __init__(self, dsn: str, *, synchronous_commit: str) -> None:
        super().__init__(daemon=True)
        self.conn = psycopg.connect(dsn, autocommit=True)
        self.conn.execute(f"SET synchronous_commit = {synchronous_commit}".encode())
        self.pid = self.conn.info.backend_pid
        self.start()

    def run(self) -> None:
        with self.conn:
            insert(self.conn)


def until_held(conn: psycopg.Connection, pid: int) -> None:
    """Return once the session waits for the standby."""
    for _ in range(int(PATIENCE * 100)):
        if conn.execute(
            "SELECT pg_sleep(0.01) FROM pg_stat_activity WHERE pid = %s AND wait_event = 'SyncRep'",
            [pid],
        ).rowcount:
            return
    raise AssertionError(f"session {pid} did not wait for the standby")


@contextmanager
def slow_commit(dsn: str, conn: psycopg.Connection) -> Iterator[None]:
    """A message whose transaction has notified, and whose commit lasts as long as the block."""
    conn.execute("UPDATE outbox_wakeup SET wanted = true")
    writer = Writer(dsn, synchronous_commit="on")
    try:
        until_held(conn, writer.pid)
        yield
    finally:
        # It ends the wait for the standby; the transaction is committed all the same.
        conn.execute("SELECT pg_cancel_backend(%s)", [writer.pid])
        writer.join(PATIENCE)


@contextmanager
def queue(dsn: str, conn: psycopg.Connection, length: int) -> Iterator[None]:
    """So many commits behind a slow one; after the block all of them go through."""
    writers = []
    try:
        with slow_commit(dsn, conn):
            for _ in range(length):
                writers.append(Writer(dsn, synchronous_commit="off"))
                until_waiting(conn, writers[-1].pid, on="object")
            yield
    finally:
        for writer in writers:
            writer.join(PATIENCE)


async def test_any_role_sees_how_many_commits_wait_to_notify(
    dsn: str, conn: psycopg.Connection
) -> None:
    with login_role(dsn) as role:
        async with database(role.dsn) as db:
            with slow_commit(dsn, conn):
                assert await db.fetch(QUEUED) == [(0,)]
            with queue(dsn, conn, WRITERS - 1):
                assert await db.fetch(QUEUED) == [(WRITERS - 1,)]
            assert await db.fetch(QUEUED) == [(0,)]


async def test_writers_who_keep_each_other_waiting_are_asked_for_silence(
    dsn: str, conn: psycopg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    # While the slow commit is held nothing arrives, so the rate cannot be what is judged.
    monkeypatch.setattr(loudness, "QUEUE_RATE", -1.0)
    monkeypatch.setattr(loudness, "QUEUE_LOOK_SECONDS", 0.01)
    async with dispatching(dsn, to(Scripted()), listen=True) as running:
        await running.events.seen(WakeupModeChanged)
        with queue(dsn, conn, WRITERS - 1):
            await until_true(conn, NOT_WANTED)
        await running.events.finished(WRITERS)


async def test_one_slow_writer_alone_is_no_reason_for_silence(
    dsn: str, conn: psycopg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks: list[int] = []
    looked = loudness.Loudness.looked

    def counting(self: loudness.Loudness, waiting: int, now: float) -> None:
        looks.append(waiting)
        looked(self, waiting, now)

    monkeypatch.setattr(loudness.Loudness, "looked", counting)
    monkeypatch.setattr(loudness, "QUEUE_RATE", -1.0)
    monkeypatch.setattr(loudness, "QUEUE_LOOK_SECONDS", 0.01)
    async with dispatching(dsn, to(Scripted()), listen=True) as running:
        await running.events.seen(WakeupModeChanged)
        with slow_commit(dsn, conn):
            seen = len(looks)
            await eventually(lambda: len(looks) > seen + loudness.QUEUE_LOOKS)
            assert conn.execute(WANTED).fetchone() == (True,)
        await running.events.finished(1)
    assert set(looks) == {0}
