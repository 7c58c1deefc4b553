"""Workers that are told to stop while something that they need hangs, all side by side."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, NamedTuple

import psycopg

from tests.support.observing import rows
from tests.support.outbox_rows import fill
from tests.support.proxy import Proxy
from tests.support.receiver import Receiver
from tests.support.workers import Exit, WorkerProcess

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

HANGING = ("deaf", "blocking", "native", "clinging")
SILENT, GONE = "the database is silent", "the database is gone"


class Ending(NamedTuple):
    """How a worker ended, and what it left behind."""

    exit: Exit
    rows: list[tuple[Any, ...]]
    """Status, attempts and lease version of its messages."""
    worker: WorkerProcess


def all_endings(
    new_database: Callable[[], str], publishers: Path, signalled: Callable[[], None]
) -> Mapping[str, Ending]:
    """One worker for each kind of trouble, with messages in flight when the signals come."""
    with ExitStack() as stack:
        receiver = stack.enter_context(Receiver())
        receiver.hold()
        proxies = {name: stack.enter_context(Proxy(new_database())) for name in (SILENT, GONE)}
        workers = {
            name: WorkerProcess(proxy.dsn, receiver.url) for name, proxy in proxies.items()
        } | {
            manner: WorkerProcess(new_database(), f"stubborn://{manner}").with_path(publishers)
            for manner in HANGING
        }
        for worker in workers.values():
            stack.enter_context(worker).start()
        for worker in workers.values():
            worker.wait_for("worker started")
            with psycopg.connect(worker.dsn, autocommit=True) as conn:
                fill(conn, 3)
        receiver.until_arrived(3 * len(proxies))
        for manner in HANGING:
            workers[manner].wait_for("publishing")
        proxies[SILENT].freeze()
        proxies[GONE].refuse()
        receiver.let_go()
        for worker in workers.values():
            worker.signal()
        signalled()
        exits = {name: worker.exit() for name, worker in workers.items()}
        proxies[SILENT].thaw()
        proxies[GONE].accept()
        return {name: _ending(workers[name], exits[name]) for name in workers}


def _ending(worker: WorkerProcess, how: Exit) -> Ending:
    with psycopg.connect(worker.dsn, autocommit=True) as conn:
        return Ending(how, rows(conn, "status, attempts, lease_version"), worker)
