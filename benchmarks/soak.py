"""Long trials of one worker against a server that fails: run by hand, `python -m benchmarks.soak`.

The tests in tests/drain do the same for seconds; this is for the figures, with the settings that
a worker has by default.
"""

# ruff: noqa: INP001 - a script, not a package

from __future__ import annotations

import random
import sys
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

import click
import psycopg

from pgoutbox.database.migrate import apply
from pgoutbox.demo.embedded import EmbeddedServer
from tests.support.observing import count, eventually
from tests.support.outbox_rows import fill
from tests.support.proxy import Proxy
from tests.support.receiver import Receiver
from tests.support.storm import Producer, Storm
from tests.support.workers import WorkerProcess

if TYPE_CHECKING:
    from collections.abc import Iterator

DEFAULTS = {
    "DATABASE__STATEMENT_TIMEOUT": "5",
    "DESTINATIONS__DEFAULT__PUBLISH_TIMEOUT": "10",
    "DRAIN__SOFT": "20",
    "DRAIN__GRACE": "30",
    "LEASE__DURATION": "30",
    "LEASE__RENEW": "10",
}


@click.group()
def soak() -> None:
    """Try one worker's patience."""


@soak.command()
@click.option("--restarts", default=10, show_default=True)
@click.option("--terminations", default=20, show_default=True, help="Sessions that are ended.")
@click.option("--rate", default=500.0, show_default=True, help="Messages offered per second.")
def storm(restarts: int, terminations: int, rate: float) -> None:
    """Restart the server and end sessions under load; nothing may be lost or repeated."""
    with migrated() as server, Receiver() as receiver:
        trial = Storm(server, receiver)
        worker = WorkerProcess(server.dsn, receiver.url, **DEFAULTS)
        with worker.started():
            began = time.monotonic()
            with Producer(server.dsn, rate):
                receiver.until_arrived(1)
                for is_restart in shuffled(restarts, terminations):
                    if is_restart:
                        trial.restart(random.uniform(0.0, 5.0))  # noqa: S311 - no secret
                    else:
                        trial.terminate_one()
                    time.sleep(2.0)
                seconds = time.monotonic() - began
            committed, lost, repeated = trial.settle()
            click.echo(f"{restarts} restarts, {terminations} ended sessions in {seconds:.0f} s")
            click.echo(
                f"{committed} committed ({committed / seconds:.0f}/s), {lost} lost,"
                f" {repeated} repeated"
            )
            recoveries = " ".join(f"{seconds:.1f}" for seconds in sorted(trial.recoveries))
            click.echo(f"seconds until messages arrived again after a restart: {recoveries}")
            click.echo(
                f"worker {'lives' if worker.running else 'ENDED'},"
                f" {len(worker.events('lease lost'))} lost leases, {len(worker.lines)} log lines,"
                f" exit {worker.stop()}"
            )
            sys.exit(bool(lost))


@soak.command()
@click.option("--seconds", default=600.0, show_default=True)
def outage(seconds: float) -> None:
    """Stop the server for so long; the worker must stay, use next to nothing, and come back."""
    with migrated() as server, Proxy(server.dsn) as proxy:
        worker = WorkerProcess(proxy.dsn, "noop://", **DEFAULTS)
        with worker.started():
            worker.wait_for("wakeup mode", mode="notify")
            server.stop()
            connections, cpu, lines = proxy.connections, worker.cpu_seconds(), len(worker.lines)
            time.sleep(seconds)
            connections, cpu = proxy.connections - connections, worker.cpu_seconds() - cpu
            lines = len(worker.lines) - lines
            server.start()
            back = time.monotonic()
            with psycopg.connect(server.dsn, autocommit=True) as conn:
                fill(conn, 10)
                eventually(lambda: not count(conn, "status <> 'done'"), "deliveries", 60.0)
            click.echo(
                f"{seconds:g} s without a server: {cpu / seconds:.2%} of a processor,"
                f" {connections / seconds:.2f} connections/s, {lines} log lines;"
                f" back after {time.monotonic() - back:.1f} s; exit {worker.stop()}"
            )


@contextmanager
def migrated() -> Iterator[EmbeddedServer]:
    """A server of our own with an empty outbox."""
    server = EmbeddedServer()
    try:
        server.start()
        with psycopg.connect(server.dsn) as conn:
            apply(conn, schema="public")
        yield server
    finally:
        server.remove()


def shuffled(restarts: int, terminations: int) -> list[bool]:
    """True for a restart, false for a session that is ended."""
    kinds = [True] * restarts + [False] * terminations
    random.shuffle(kinds)
    return kinds


if __name__ == "__main__":
    soak()
