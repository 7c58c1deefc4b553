"""Many sessions that insert as fast as the server takes it, driven by one process.

A client per producer would compete with the server for the machine's cores, and its own speed
would be measured. Here each session always has a few transactions on their way (libpq's pipeline
mode, each statement a transaction of its own), so the server is never waited for and never waits.
"""

from __future__ import annotations

import contextlib
import selectors
import time
from typing import TYPE_CHECKING, Any, NamedTuple

from psycopg import pq

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    import psycopg

DEPTH = 4
"""Transactions of one session that are on their way."""
LINGER = 30.0
"""Seconds to wait for the last answers."""


class Statement(NamedTuple):
    """One that is prepared on the session, and how to make its parameters."""

    name: bytes
    parameters: Callable[[], Sequence[bytes | None]]
    formats: Sequence[int]


class Session:
    """One producer's connection in pipeline mode."""

    def __init__(self, conn: psycopg.Connection[Any], statement: Statement) -> None:
        self.pgconn = conn.pgconn
        self._statement = statement
        self.on_their_way = 0

    def begin(self) -> None:
        """Fill the pipeline."""
        self.pgconn.nonblocking = 1
        self.pgconn.enter_pipeline_mode()
        for _ in range(DEPTH):
            self.send()

    def send(self) -> None:
        """One more transaction."""
        name, parameters, formats = self._statement
        self.pgconn.send_query_prepared(name, parameters(), formats)
        self.pgconn.pipeline_sync()
        self.pgconn.flush()
        self.on_their_way += 1

    def committed(self) -> int:
        """Read what has arrived; how many transactions it confirms."""
        self.pgconn.consume_input()
        count = 0
        while self.on_their_way > count and not self.pgconn.is_busy():
            answer = self.pgconn.get_result()
            if answer is None:
                continue
            if answer.status == pq.ExecStatus.PIPELINE_SYNC:
                count += 1
            elif answer.status != pq.ExecStatus.COMMAND_OK:
                raise RuntimeError(f"a producer's insert failed: {answer.get_error_message()}")
        self.on_their_way -= count
        return count


def rate(sessions: Sequence[Session], *, warm_up: float, seconds: float) -> float:
    """Transactions per second over ``seconds``, after ``warm_up`` seconds of the same."""
    with _watching(sessions) as selector:
        _drive(selector, until=time.monotonic() + warm_up)
        began = time.monotonic()
        count = _drive(selector, until=began + seconds)
        elapsed = time.monotonic() - began
        _finish(selector, sessions)
    return count / elapsed


@contextlib.contextmanager
def _watching(sessions: Sequence[Session]) -> Iterator[selectors.BaseSelector]:
    with selectors.DefaultSelector() as selector:
        for session in sessions:
            selector.register(session.pgconn.socket, selectors.EVENT_READ, session)
            session.begin()
        yield selector


def _drive(selector: selectors.BaseSelector, *, until: float) -> int:
    """Send one for each that is confirmed, until then."""
    total = 0
    while time.monotonic() < until:
        for key, _ in selector.select(timeout=0.1):
            count = key.data.committed()
            total += count
            for _ in range(count):
                key.data.send()
    return total


def _finish(selector: selectors.BaseSelector, sessions: Sequence[Session]) -> None:
    deadline = time.monotonic() + LINGER
    while any(session.on_their_way for session in sessions):
        if time.monotonic() > deadline:
            raise RuntimeError(f"a producer's insert took longer than {LINGER:g} s")
        for key, _ in selector.select(timeout=0.1):
            key.data.committed()
