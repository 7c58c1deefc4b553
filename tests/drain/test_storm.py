"""Restarts and terminated sessions under load cost time, and no message."""

from __future__ import annotations

from contextlib import ExitStack, closing, contextmanager, suppress
from typing import TYPE_CHECKING

import psycopg
import pytest

from pgoutbox.database.migrate import apply
from pgoutbox.demo.embedded import EmbeddedServer
from tests.support.observing import count, eventually
from tests.support.outbox_rows import fill
from tests.support.storm import Producer, Storm
from tests.support.workers import WorkerProcess

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.support.observing import Conn
    from tests.support.receiver import Receiver

RATE = 300.0


@pytest.fixture(scope="module")
def whole_server() -> Iterator[EmbeddedServer]:
    """A server of their own, to be stopped and started, with room for few connections."""
    few = {"max_connections": "12", "superuser_reserved_connections": "2", "autovacuum": "off"}
    own = EmbeddedServer(settings={"fsync": "off", **few})
    try:
        own.start()
        with psycopg.connect(own.dsn) as conn:
            apply(conn, schema="public")
        yield own
    finally:
        own.remove()


@pytest.fixture
def server(whole_server: EmbeddedServer) -> EmbeddedServer:
    """The server, without messages."""
    with psycopg.connect(whole_server.dsn) as conn:
        conn.execute("DELETE FROM outbox")
    return whole_server


def test_restarts_and_terminated_sessions_lose_nothing_and_end_no_worker(
    server: EmbeddedServer, receiver: Receiver
) -> None:
    storm = Storm(server, receiver)
    with WorkerProcess(server.dsn, receiver.url).started() as worker:
        with Producer(server.dsn, RATE):
            receiver.until_arrived(100)
            for _ in range(3):
                storm.restart()
                for _ in range(3):
                    storm.terminate_one()
        committed, lost, repeated = storm.settle()
        assert worker.running
        assert worker.stop().code == 0

    assert committed > 1000
    assert (lost, repeated) == (0, 0)
    assert max(storm.recoveries) < 5.0
    assert worker.events("lease lost") == []


def test_a_server_without_a_free_connection_is_waited_for(
    server: EmbeddedServer, receiver: Receiver
) -> None:
    with all_connections(server.dsn) as taken:
        worker = WorkerProcess(server.dsn, receiver.url)
        with worker.start():
            failed = worker.wait_for("database failed", doing="connect")
            assert "too many clients" in failed["error"]
            assert (worker.get("/livez"), worker.get("/readyz")) == (200, 503)
            for conn in taken[1:]:
                conn.close()
            fill(taken[0], 3)
            eventually(lambda: count(taken[0], "status = 'done'") == 3, "deliveries", 5.0)
            assert worker.stop().code == 0


@contextmanager
def all_connections(dsn: str) -> Iterator[list[Conn]]:
    """Every connection that the server has to give."""
    with ExitStack() as stack:
        taken: list[Conn] = []
        with suppress(psycopg.OperationalError):
            while True:
                taken.append(stack.enter_context(closing(psycopg.connect(dsn, autocommit=True))))
        yield taken
