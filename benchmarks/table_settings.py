"""Fillfactor and autovacuum of the table `outbox`, compared: `python -m benchmarks.table_settings`.

Each round gives every candidate a database of its own with the same history, the same steady load
(enqueue, claim, finalize by a real worker) and the same backlog to drain at the end. fsync is on.
Autovacuum looks around every few seconds instead of every minute, so that a short trial sees many
rounds of it. Compare the candidates of one run; absolute figures are the machine's.
"""

# ruff: noqa: INP001 - a script, not a package

from __future__ import annotations

import statistics
import time
import urllib.request
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

import click
import psycopg
from psycopg.conninfo import make_conninfo

from pgoutbox.database.migrate import apply
from pgoutbox.demo.embedded import EmbeddedServer
from tests.support.exporters import samples
from tests.support.observing import count, eventually
from tests.support.outbox_rows import fill
from tests.support.storm import Producer
from tests.support.workers import WorkerProcess

if TYPE_CHECKING:
    from collections.abc import Iterator

PRESENT = "present"
CANDIDATES = {
    PRESENT: "",
    "fillfactor 90": "ALTER TABLE outbox SET (fillfactor = 90)",
    "fillfactor 70": "ALTER TABLE outbox SET (fillfactor = 70)",
    "server's autovacuum": "ALTER TABLE outbox RESET (autovacuum_vacuum_scale_factor,"
    " autovacuum_vacuum_threshold, autovacuum_vacuum_insert_scale_factor,"
    " autovacuum_analyze_scale_factor, autovacuum_vacuum_cost_delay)",
    "index cleanup on": "ALTER TABLE outbox SET (vacuum_index_cleanup = on)",
}
HISTORY = {
    "status": "'done'",
    "pending_since": "NULL",
    "done_at": "now() - interval '1 hour'",
    "payload": "jsonb_build_object('filler', repeat('x', 400))",
}
BACKLOG = {"payload": "jsonb_build_object('filler', repeat('x', 400))"}
WORKER = {
    "DATABASE__STATEMENT_TIMEOUT": "5",
    "DRAIN__SOFT": "20",
    "DRAIN__GRACE": "30",
    "LEASE__DURATION": "30",
    "LEASE__RENEW": "10",
}
SERVER = {"autovacuum_naptime": "5s", "shared_buffers": "256MB", "max_wal_size": "4GB"}
SETTLE_SECONDS = 2.0
"""A session reports its counts at most once a second."""
MILLI = 1e3
MIB = 2**20

STATE = b"""
SELECT s.n_dead_tup, s.n_tup_upd, s.n_tup_hot_upd, s.autovacuum_count,
       pg_table_size(s.relid), pg_indexes_size(s.relid),
       b.heap_blks_hit + b.heap_blks_read + b.idx_blks_hit + b.idx_blks_read
  FROM pg_stat_user_tables s JOIN pg_statio_user_tables b USING (relid)
 WHERE s.relname = 'outbox'
"""


class Figures(NamedTuple):
    """What one trial found. Sizes in MiB."""

    claim_ms: float
    """A claim that brought something, under the steady load."""
    finalize_ms: float
    late: int
    """Messages that were still undelivered when the load ended."""
    blocks: float
    """Blocks of the table and its indexes that were touched per message, autovacuum included: the
    work that was done, whatever else the machine did."""
    drain_msgs_per_s: float
    dead: int
    hot: float
    vacuums: int
    table: float
    indexes: float


@click.command()
@click.option("--rounds", default=3, show_default=True)
@click.option("--rate", default=1000.0, show_default=True, help="Messages per second.")
@click.option("--seconds", default=60.0, show_default=True, help="How long, per trial.")
@click.option("--history", default=300_000, show_default=True, help="Finished messages before it.")
@click.option("--backlog", default=50_000, show_default=True, help="Messages to drain after it.")
@click.option("--only", multiple=True, type=click.Choice(list(CANDIDATES)))
@click.option("--mode", default="keep", show_default=True, help="PGOUTBOX_RETENTION__MODE.")
def compare(**options: Any) -> None:  # noqa: ANN401 - click's, named below
    """Print the medians per candidate."""
    chosen = options["only"] or list(CANDIDATES)
    found: dict[str, list[Figures]] = {name: [] for name in chosen}
    with server() as dsn:
        for number in range(options["rounds"]):
            # Whatever the machine does meanwhile shall not always meet the same one.
            for name in chosen[number % len(chosen) :] + chosen[: number % len(chosen)]:
                figures = trial(dsn, CANDIDATES[name], options)
                found[name].append(figures)
                click.echo(f"round {number + 1}, {name}: {figures}", err=True)
    click.echo(" | ".join(["candidate", *Figures._fields]))
    for name, several in found.items():
        medians = [statistics.median(each) for each in zip(*several, strict=True)]
        click.echo(" | ".join([name, *(f"{value:.4g}" for value in medians)]))


def trial(server_dsn: str, statement: str, options: dict[str, Any]) -> Figures:
    """One candidate, once."""
    with database(server_dsn) as dsn, psycopg.connect(dsn, autocommit=True) as conn:
        apply(conn, schema="public")
        if statement:
            conn.execute(statement.encode())
        fill(conn, options["history"], **HISTORY)
        conn.execute("VACUUM (ANALYZE) outbox")
        conn.execute("SELECT pg_stat_reset()")
        settings = WORKER | {"RETENTION__MODE": options["mode"]}
        with WorkerProcess(dsn, "noop://", **settings).started() as worker:
            with Producer(dsn, options["rate"]):
                time.sleep(options["seconds"])
            late = count(conn, "pending_since IS NOT NULL")
            until_delivered(conn)
            claim, finalize, published = timings(worker)
            dead, updated, hot, vacuums, table, indexes, blocks = state(conn)
            worker.stop()
        speed = drain(dsn, conn, settings, options["backlog"])
        return Figures(
            claim_ms=claim,
            finalize_ms=finalize,
            late=late,
            blocks=blocks / published,
            drain_msgs_per_s=speed,
            dead=dead,
            hot=hot / max(updated, 1),
            vacuums=vacuums,
            table=table / MIB,
            indexes=indexes / MIB,
        )


def drain(dsn: str, conn: psycopg.Connection[Any], settings: dict[str, str], backlog: int) -> float:
    """Messages per second over a backlog that was there before the worker."""
    fill(conn, backlog, **BACKLOG)
    with WorkerProcess(dsn, "noop://", **settings).started() as worker:
        began = time.monotonic()
        until_delivered(conn)
        seconds = time.monotonic() - began
        worker.stop()
    return backlog / seconds


def until_delivered(conn: psycopg.Connection[Any]) -> None:
    """Return once nothing is owed."""
    eventually(lambda: not count(conn, "pending_since IS NOT NULL"), "deliveries", 300.0)


def timings(worker: WorkerProcess) -> tuple[float, float, float]:
    """Milliseconds of the mean claim and of the mean finalize, and how many were published."""
    with urllib.request.urlopen(f"http://127.0.0.1:{worker.port}/metrics", timeout=5) as answer:
        told = samples(answer.read().decode())
    claim, finalize = (
        told[f"outbox_{what}_duration_seconds_sum",]
        / told[f"outbox_{what}_duration_seconds_count",]
        for what in ("claim", "finalize")
    )
    published = told["outbox_messages_published_total", "default"]
    return claim * MILLI, finalize * MILLI, published


def state(conn: psycopg.Connection[Any]) -> tuple[int, ...]:
    """The answers of `STATE`, once the worker's counts have arrived there."""
    time.sleep(SETTLE_SECONDS)
    found: tuple[int, ...] = conn.execute(STATE).fetchall()[0]
    return found


@contextmanager
def server() -> Iterator[str]:
    """A server of our own, with fsync as by default."""
    embedded = EmbeddedServer(settings=SERVER)
    try:
        embedded.start()
        yield embedded.dsn
    finally:
        embedded.remove()


@contextmanager
def database(server_dsn: str) -> Iterator[str]:
    """A database for one trial."""
    with psycopg.connect(server_dsn, autocommit=True) as admin:
        admin.execute("CREATE DATABASE trial TEMPLATE template0 ENCODING 'UTF8'")
        try:
            yield make_conninfo(server_dsn, dbname="trial")
        finally:
            admin.execute("DROP DATABASE trial WITH (FORCE)")


if __name__ == "__main__":
    compare()
