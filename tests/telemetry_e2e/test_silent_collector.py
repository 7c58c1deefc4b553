"""A collector that takes connections and never answers costs neither messages nor time."""

from __future__ import annotations

import socket
import threading
from typing import TYPE_CHECKING, Self

import pytest

from tests.support.observing import count, eventually
from tests.support.outbox_rows import fill
from tests.support.tracing import TracedWorker

if TYPE_CHECKING:
    from tests.support.observing import Conn

pytestmark = pytest.mark.broker

SAMPLED = (
    "jsonb_build_object('traceparent',"
    " '00-' || md5('t' || g) || '-' || left(md5('s' || g), 16) || '-01')"
)
MESSAGES = 2000
ROUNDS = 2
FLUSH = 3.0
"""Seconds that a worker takes at most to send its last spans."""


class SilentCollector:
    """Reads whatever it is sent."""

    def __init__(self) -> None:
        self._server = socket.create_server(("127.0.0.1", 0))
        self._thread = threading.Thread(target=self._serve)
        self._clients: list[socket.socket] = []
        self.url = f"http://127.0.0.1:{self._server.getsockname()[1]}"
        self.asked = threading.Event()
        """Somebody has begun a request."""

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown(socket.SHUT_RDWR)
        self._thread.join()
        self._server.close()
        for client in self._clients:
            client.close()

    def _serve(self) -> None:
        while True:
            try:
                client, _ = self._server.accept()
            except OSError:
                return
            self._clients.append(client)
            threading.Thread(target=self._read, args=(client,), daemon=True).start()

    def _read(self, client: socket.socket) -> None:
        try:
            while client.recv(65_536):
                self.asked.set()
        except OSError:
            return  # closed, by either side


def test_it_slows_down_nobody(dsn: str, conn: Conn) -> None:
    silent: list[float] = []
    without: list[float] = []
    with SilentCollector() as collector:
        # Taken in turns, since other work on the machine comes and goes.
        for _ in range(ROUNDS):
            silent += rates(dsn, conn, collector.url)
            without += rates(dsn, conn, "")
        assert collector.asked.is_set()
    # Making spans costs a part of it; waiting for one answer would cost nearly all of it.
    assert max(silent) > 0.4 * max(without), f"{silent} messages a second, else {without}"


def rates(dsn: str, conn: Conn, endpoint: str) -> list[float]:
    """How many messages per second a worker publishes, each of a sampled trace."""
    with TracedWorker(dsn, endpoint, URL="noop://").started() as worker:
        found = [MESSAGES / seconds_for(conn, MESSAGES) for _ in range(ROUNDS)]
        assert bool(worker.events("tracing")) is bool(endpoint)
        assert worker.running
    return found


def seconds_for(conn: Conn, number: int) -> float:
    with conn.transaction():
        fill(conn, number, destination="'orders'", headers=SAMPLED)
    took = eventually(lambda: count(conn, "status <> 'done'") == 0, "delivery of all")
    conn.execute("DELETE FROM outbox")
    return took


def test_it_holds_up_no_exit(dsn: str, conn: Conn) -> None:
    with (
        SilentCollector() as collector,
        TracedWorker(dsn, collector.url, URL="noop://").started() as worker,
    ):
        seconds_for(conn, 100)
        assert collector.asked.wait(20), "no spans were sent"
        exit_ = worker.stop()
        assert exit_.code == 0
        assert exit_.seconds < FLUSH + 2
        assert worker.events("spans were lost")[0]["count"] >= 100
