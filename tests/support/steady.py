"""A steady load, and what became of it."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING, Self

import psycopg

from pgoutbox import Message, enqueue_many

if TYPE_CHECKING:
    from tests.support.receiver import Receiver

BATCH = 50
PATIENCE = 90.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What is reported of a case."""

    messages: int
    lost: int
    duplicates: int
    attempts_spent: int
    """Beyond the one that each delivery takes."""
    longest_gap: float
    """Seconds between two arrivals, while there was something to deliver."""


@dataclass(slots=True)
class Load:
    """``per_second`` messages are enqueued from the beginning of the block to its end."""

    dsn: str
    per_second: int
    sent: list[str] = field(default_factory=list)
    _stop: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None
    began: float = 0.0
    ended: float = 0.0

    def __enter__(self) -> Self:
        self.began = time.monotonic()
        self._thread = threading.Thread(target=self._go_on)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        assert self._thread is not None
        self._thread.join()
        self.ended = time.monotonic()

    def _go_on(self) -> None:
        message = Message(aggregate_type="order", aggregate_id="1", event_type="Paid", payload={})
        with psycopg.connect(self.dsn, autocommit=True) as conn:
            while not self._stop.is_set():
                with conn.transaction():
                    ids = enqueue_many(conn, [message] * BATCH)
                self.sent += map(str, ids)
                due = self.began + len(self.sent) / self.per_second
                self._stop.wait(max(0.0, due - time.monotonic()))


def outcome(load: Load, receiver: Receiver) -> Outcome:
    """Wait until all is delivered, and compare."""
    sent = set(load.sent)
    receiver.until(lambda found: len(found) >= len(sent), "all arrive")
    with psycopg.connect(load.dsn, autocommit=True) as conn:
        until_done(conn)
        [(spent,)] = conn.execute(
            "SELECT coalesce(sum(attempts - 1), 0) FROM outbox WHERE message_id = ANY (%s::uuid[])",
            [load.sent],
        ).fetchall()
    arrivals = {name: n for name, n in receiver.arrivals.items() if name in sent}
    times = [each.at for each in receiver.deliveries if load.began + 1 < each.at < load.ended]
    return Outcome(
        messages=len(sent),
        lost=len(sent - arrivals.keys()),
        duplicates=sum(arrivals.values()) - len(arrivals),
        attempts_spent=int(spent),
        longest_gap=round(max((b - a for a, b in pairwise(times)), default=0.0), 3),
    )


def until_done(conn: psycopg.Connection) -> None:
    """Return once nothing is left to be delivered."""
    deadline = time.monotonic() + PATIENCE
    pause = threading.Event()
    while conn.execute("SELECT FROM outbox WHERE status <> 'done' LIMIT 1").fetchall():
        assert time.monotonic() < deadline, "something is never delivered"
        pause.wait(0.1)
