"""What an enqueue costs 16 producers beside a bare insert, and what being woken costs them.

The statement is the one that `pgoutbox.enqueue` prepared on the session itself. The variants take
turns, round after round, and each ratio is the median of those within a round: what changes on the
machine changes for both. Those with a worker run once, for as long as it takes from one look at how
loud it is to the next.
"""

from __future__ import annotations

import contextlib
import time
from statistics import median
from typing import TYPE_CHECKING, Any, NamedTuple

import pgoutbox
from pgoutbox.bench.figures import Found
from pgoutbox.bench.pipelines import Session, Statement, rate
from pgoutbox.bench.seeds import flush
from pgoutbox.bench.workers import Worked, start, stop, worked
from pgoutbox.dispatch.loudness import RATE_WINDOW, SILENCE_SECONDS
from pgoutbox.producer.ids import new_id
from pgoutbox.producer.row import row_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    import psycopg

    from pgoutbox.bench.place import Place
    from pgoutbox.producer.row import Row

PRODUCERS = 16
ROUNDS = 3
SECONDS = 2.0
CYCLE = SILENCE_SECONDS + 3 * RATE_WINDOW
"""Seconds in which a worker beside a steady load asks to be woken, notices, and is silent again."""
START = 30.0
SIZE = 500
ENDLESS = 10**9

# The same columns and bytes, and nothing that an outbox needs beside its primary key.
BARE = b"""
CREATE TABLE bare (LIKE outbox INCLUDING DEFAULTS INCLUDING IDENTITY);
ALTER TABLE bare ADD PRIMARY KEY (id);
CREATE TABLE bare_indexed (LIKE outbox INCLUDING DEFAULTS INCLUDING IDENTITY INCLUDING INDEXES)
"""
INSERT_BARE = b"""
INSERT INTO bare (message_id, destination, ordering_key, aggregate_type, aggregate_id,
                  event_type, content_type, dedup_key, headers, payload, body, available_at)
VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s::jsonb, %s::jsonb, %s::bytea,
        coalesce(%s::timestamptz, now() + %s::bigint * interval '1 microsecond', now()))
"""
INSERT_BARE_INDEXED = b"""
INSERT INTO bare_indexed (message_id, destination, ordering_key, aggregate_type, aggregate_id,
                          event_type, content_type, dedup_key, headers, payload, body,
                          available_at)
VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s::jsonb, %s::jsonb, %s::bytea,
        coalesce(%s::timestamptz, now() + %s::bigint * interval '1 microsecond', now()))
"""
EMPTY = b"TRUNCATE outbox, bare, bare_indexed"
TRIGGER_OFF = b"ALTER TABLE outbox DISABLE TRIGGER outbox_notify"
TRIGGER_ON = b"ALTER TABLE outbox ENABLE TRIGGER outbox_notify"
SWITCH = b"UPDATE outbox_wakeup SET wanted = %(wanted)s"
PREPARED = b"SELECT name FROM pg_prepared_statements WHERE statement LIKE '%INSERT INTO%'"
ARRIVED = b"SELECT FROM outbox_workers"

MESSAGE = pgoutbox.Message(
    aggregate_type="order",
    aggregate_id="4711",
    event_type="created",
    payload=b"x" * SIZE,
    content_type="text/plain",
)


class Variant(NamedTuple):
    """What the producers insert into, and who is there. ``wanted`` is the flag before the run."""

    name: str
    bare: bytes | None = None
    """The statement of a bare insert; None enqueues."""
    trigger: bool = True
    wanted: bool = False
    worker: bool = False


ALONE = (
    Variant("bare", bare=INSERT_BARE),
    Variant("bare_indexed", bare=INSERT_BARE_INDEXED),
    Variant("no_trigger", trigger=False),
    Variant("wakeup_off"),
    Variant("wakeup_on", wanted=True),
)
BESIDE_A_WORKER = (
    Variant("no_trigger_with_worker", trigger=False, worker=True),
    Variant("switching", worker=True),
)
# Time per message: the first one's rate divided by the second one's.
RATIOS = {
    "enqueue_to_bare": ("bare", "wakeup_off"),
    "enqueue_to_bare_indexed": ("bare_indexed", "wakeup_off"),
    "always_on_to_no_trigger": ("no_trigger", "wakeup_on"),
    "switching_to_no_trigger": ("no_trigger_with_worker", "switching"),
    "switching_to_no_trigger_alone": ("no_trigger", "switching"),
}


def producers(place: Place, scale: float) -> Found:
    """16 producers, as fast as they can: bare inserts, and enqueues in every wake-up mode."""
    share = min(scale, 1.0)
    seconds, cycle = max(SECONDS * share, 0.2), max(CYCLE * share, 0.5)
    with place.connect() as conn:
        conn.execute(BARE)
    seen: list[Worked] = []
    beside = {v.name: _measure(place, v, cycle, seen) for v in BESIDE_A_WORKER}
    rounds = [
        beside | {v.name: _measure(place, v, seconds, seen) for v in ALONE} for _ in range(ROUNDS)
    ]
    rates = {f"{name}_per_s": median(one[name] for one in rounds) for name in rounds[0]}
    ratios = {
        name: median(one[base] / one[other] for one in rounds)
        for name, (base, other) in RATIOS.items()
    }
    finished = sum(one.finished for one in seen)
    return Found(
        claim_ms_per_100=seen[-1].claim_ms_per_100,
        msgs_per_s=rates["switching_per_s"],
        by=f"{PRODUCERS} sessions that enqueue, beside one worker that switches the wake-up flag",
        finished=finished,
        of=finished,
        more=rates | ratios,
    )


def _measure(place: Place, variant: Variant, seconds: float, seen: list[Worked]) -> float:
    with place.connect() as conn:
        conn.execute(EMPTY)
        conn.execute(TRIGGER_ON if variant.trigger else TRIGGER_OFF)
        conn.execute(SWITCH, {"wanted": variant.wanted})
        flush(conn)
    with contextlib.ExitStack() as stack:
        if variant.worker:
            stack.enter_context(_worker(place, seen))
        sessions = [stack.enter_context(_session(place, variant)) for _ in range(PRODUCERS)]
        return rate(sessions, warm_up=min(seconds / 4, 1.0), seconds=seconds)


@contextlib.contextmanager
def _session(place: Place, variant: Variant) -> Iterator[Session]:
    row = row_of(MESSAGE, max_payload_bytes=SIZE)
    # Not conn as a context manager: that would end a transaction, which pipelines do by themselves.
    with contextlib.closing(place.connect_producer()) as conn:
        conn.prepare_threshold = 0
        if variant.bare is None:
            pgoutbox.enqueue(conn, MESSAGE, allow_autocommit=True)
        else:
            conn.execute(variant.bare, row)
        conn.prepare_threshold = None
        [(name,)] = conn.execute(PREPARED).fetchall()
        yield Session(conn, _statement(name.encode(), row))


def _statement(name: bytes, row: Row) -> Statement:
    """As psycopg sends it: bytes and ids in binary form, text for all else. Each has its own id."""
    rest = [_sent(value) for value in row[1:]]
    formats = [1, *(int(isinstance(value, bytes)) for value in row[1:])]
    return Statement(name, lambda: [new_id().bytes, *rest], formats)


def _sent(value: object) -> bytes | None:
    if value is None or isinstance(value, bytes):
        return value
    return str(value).encode()


@contextlib.contextmanager
def _worker(place: Place, seen: list[Worked]) -> Iterator[None]:
    """One that drains what the producers write, from its first heartbeat on."""
    process = start(place, "noop://", ENDLESS)
    try:
        with place.connect() as conn:
            _await_heartbeat(conn)
        yield
        seen.append(worked(stop(process)))
    finally:
        process.kill()
        process.wait()


def _await_heartbeat(conn: psycopg.Connection[Any]) -> None:
    deadline = time.monotonic() + START
    while not conn.execute(ARRIVED).rowcount:
        if time.monotonic() > deadline:
            raise RuntimeError(f"the worker did not start within {START:g} s")
        time.sleep(0.05)
