"""A scenario: what one dead destination costs those that work."""

from __future__ import annotations

import contextlib
import socket
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from statistics import median
from typing import TYPE_CHECKING

from pgoutbox.bench.figures import Found
from pgoutbox.bench.latency import latency, percentiles
from pgoutbox.bench.seeds import DUE, sow
from pgoutbox.bench.unordered import scaled

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager

    from pgoutbox.bench.place import Place

BACKLOG = 50_000
HEALTHY = 10
RATE = 200.0
SECONDS = 10.0
ROUNDS = 3
SIZE = 500
DEAD = "dead"
BY = "one worker process; from the return of COMMIT to the entry of publish, ten destinations"

EMPTY = b"TRUNCATE outbox"
FOR_THE_DEAD = b"ALTER TABLE outbox ALTER COLUMN destination SET DEFAULT 'dead'"
AS_BEFORE = b"ALTER TABLE outbox ALTER COLUMN destination SET DEFAULT 'default'"
SPENT = b"SELECT coalesce(sum(attempts), 0) FROM outbox WHERE destination = 'dead'"


def dead_destination(place: Place, scale: float) -> Found:
    """50,000 messages wait for a destination that is dead, beside ten that take 200 a second."""
    seconds = max(SECONDS * scale, 1.0)
    rounds = ROUNDS if scale >= 1 else 1
    p99: dict[str, list[float]] = {name: [] for name in DEATHS}
    spent: dict[str, float] = {}
    for _ in range(rounds):
        for name, dies in DEATHS.items():
            with dies() as url:
                value, attempts = _measure(place, url, scaled(BACKLOG, scale), seconds)
            p99[name].append(value)
            spent[name] = max(spent.get(name, 0), attempts)
    alone = median(p99["alone"])
    more: dict[str, float | None] = {}
    for name, values in p99.items():
        more[f"{name}_p99_ms"] = median(values) * 1000
        if name != "alone":
            more[f"{name}_to_alone"] = median(values) / alone
            more[f"{name}_attempts_spent"] = spent[name]
    count = int(RATE * seconds)
    return Found(claim_ms_per_100=None, msgs_per_s=None, by=BY, finished=count, of=count, more=more)


def _measure(place: Place, url: str, backlog: int, seconds: float) -> tuple[float, float]:
    """The 99th percentile in seconds, and the attempts that the dead one's messages spent."""
    names = [f"healthy_{number}" for number in range(HEALTHY)]
    settings = {f"PGOUTBOX_DESTINATIONS__{name.upper()}__URL": "noop://" for name in names}
    with place.connect() as conn:
        conn.execute(EMPTY)
    if url:
        settings[f"PGOUTBOX_DESTINATIONS__{DEAD.upper()}__URL"] = url
        _sow_for_the_dead(place, backlog)
    values, _ = latency(
        place,
        rate=RATE,
        seconds=seconds,
        size=SIZE,
        advance=lambda _: None,
        destinations=names,
        settings=settings,
    )
    with place.connect() as conn:
        [attempts] = conn.execute(SPENT).fetchone() or (0,)
    return percentiles(values)[1], float(attempts)


def _sow_for_the_dead(place: Place, count: int) -> None:
    with place.connect() as conn:
        conn.execute(FOR_THE_DEAD)
        sow(place, (DUE, {"count": count, "size": SIZE}))
        conn.execute(AS_BEFORE)


@contextlib.contextmanager
def _alone() -> Iterator[str]:
    yield ""


@contextlib.contextmanager
def _refusing() -> Iterator[str]:
    """A port that nobody listens at."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        yield f"http://127.0.0.1:{bound.getsockname()[1]}/"


@contextlib.contextmanager
def _silent() -> Iterator[str]:
    """Connections are established, and that is all."""
    with socket.create_server(("127.0.0.1", 0), backlog=1000) as listening:
        yield f"http://127.0.0.1:{listening.getsockname()[1]}/"


@contextlib.contextmanager
def _failing() -> Iterator[str]:
    """Every request is answered with 503."""
    server = HTTPServer(("127.0.0.1", 0), _Unavailable)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/"
    finally:
        server.shutdown()
        server.server_close()


class _Unavailable(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length", "0")))
        self.send_error(503)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - as above
        """Nothing: it is asked often."""


DEATHS: dict[str, Callable[[], AbstractContextManager[str]]] = {
    "alone": _alone,
    "refusing": _refusing,
    "silent": _silent,
    "failing": _failing,
}
"""``alone``: there is none. The others by what is wrong with them."""
