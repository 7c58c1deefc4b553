"""Messages at a steady rate while the server is restarted and its sessions are terminated."""

from __future__ import annotations

import threading
import time
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple, Self

import psycopg

from tests.support.receiver import message_ids

if TYPE_CHECKING:
    from pgoutbox.demo.embedded import EmbeddedServer
    from tests.support.receiver import Receiver

STEP = 0.1
"""Seconds between two transactions of the producer."""

ENQUEUE = b"""
INSERT INTO outbox (aggregate_type, aggregate_id, event_type, payload)
SELECT 'storm', g::text, 'e', '{}' FROM generate_series(1, %s) AS g
"""
TERMINATE = b"""
SELECT pg_terminate_backend(pid)
  FROM (SELECT pid FROM pg_stat_activity WHERE application_name LIKE 'pgoutbox%%'
         ORDER BY random() LIMIT 1) AS one
"""
OUTSTANDING = b"SELECT count(*) FROM outbox WHERE status <> 'done'"


class Producer:
    """Offers ``rate`` messages a second, and does not mind an outage; what fails is not made up."""

    def __init__(self, dsn: str, rate: float) -> None:
        self._dsn = dsn
        self._rate = rate
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._produce, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _produce(self) -> None:
        while not self._stop.is_set():
            with suppress(psycopg.OperationalError), psycopg.connect(self._dsn) as conn:
                self._produce_over(conn)
            self._stop.wait(STEP)

    def _produce_over(self, conn: psycopg.Connection[tuple[object, ...]]) -> None:
        next_step = time.monotonic()
        while not self._stop.is_set():
            conn.execute(ENQUEUE, [round(self._rate * STEP)])
            conn.commit()
            next_step += STEP
            self._stop.wait(max(0.0, next_step - time.monotonic()))


class Tally(NamedTuple):
    """What became of the messages."""

    committed: int
    lost: int
    """Committed, and never seen by the receiver."""
    repeated: int
    """Received more than once."""


class Storm:
    """What is done to the server, and how long it took until messages arrived again."""

    def __init__(self, server: EmbeddedServer, receiver: Receiver) -> None:
        self._server = server
        self._receiver = receiver
        self.recoveries: list[float] = []
        """Seconds from the moment the server was back to the next message from after it."""

    def restart(self, seconds: float = 0.0) -> None:
        """Stop the server for ``seconds``, and wait for messages that were enqueued since."""
        self._server.stop()
        time.sleep(seconds)
        self._server.start()
        back = time.monotonic()
        # More than the worker may have had in flight while the server was away.
        self._until_more(200)
        self.recoveries.append(time.monotonic() - back)

    def terminate_one(self) -> None:
        """End one session of a worker, and wait for some messages more."""
        with psycopg.connect(self._server.dsn, autocommit=True) as admin:
            admin.execute(TERMINATE)
        self._until_more(60)

    def _until_more(self, count: int) -> None:
        wanted = len(self._receiver.deliveries) + count
        self._receiver.until(lambda seen: len(seen) > wanted, f"{count} messages more")

    def settle(self, patience: float = 60.0) -> Tally:
        """Wait until nothing is outstanding, and count."""
        deadline = time.monotonic() + patience
        with psycopg.connect(self._server.dsn, autocommit=True) as admin:
            while time.monotonic() < deadline:
                if admin.execute(OUTSTANDING).fetchall() == [(0,)]:
                    break
                time.sleep(0.1)
            committed = message_ids(admin)
        arrivals = self._receiver.arrivals
        lost = committed - set(self._receiver.answered)
        return Tally(len(committed), len(lost), sum(times > 1 for times in arrivals.values()))
