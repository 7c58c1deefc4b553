"""Nothing that hangs can keep a worker past its grace: not a database, not a publisher.

Each of these takes most of a grace, so the workers die side by side.
"""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, NamedTuple

import psycopg
import pytest

from tests.support.observing import rows
from tests.support.outbox_rows import fill
from tests.support.proxy import Proxy
from tests.support.receiver import Receiver
from tests.support.workers import GRACE, Exit, WorkerProcess

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path


class Ending(NamedTuple):
    """How a worker ended, and what it left behind."""

    exit: Exit
    rows: list[tuple[Any, ...]]
    """Status, attempts and lease version of its messages."""
    worker: WorkerProcess


HANGING = ("deaf", "blocking", "native", "clinging")
SILENT, GONE = "the database is silent", "the database is gone"


@pytest.fixture(scope="module")
def endings(new_database: Callable[[], str], publishers: Path) -> Mapping[str, Ending]:
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
        exits = {name: worker.exit() for name, worker in workers.items()}
        proxies[SILENT].thaw()
        proxies[GONE].accept()
        return {name: ending(workers[name], exits[name]) for name in workers}


def ending(worker: WorkerProcess, how: Exit) -> Ending:
    with psycopg.connect(worker.dsn, autocommit=True) as conn:
        return Ending(how, rows(conn, "status, attempts, lease_version"), worker)


@pytest.mark.parametrize("trouble", [SILENT, GONE])
def test_without_its_database_a_worker_ends_in_time_and_leaves_the_rows_to_their_lease(
    endings: Mapping[str, Ending], trouble: str
) -> None:
    (code, seconds), left, worker = endings[trouble]
    assert code == 0
    assert seconds < GRACE - 1
    assert left == [("processing", 1, 1)] * 3
    assert worker.events("drain ended")[0]["abandoned"] == 3


def test_a_publisher_that_ignores_its_cancellation_delays_the_exit_by_the_cancel_wait_only(
    endings: Mapping[str, Ending],
) -> None:
    (code, seconds), left, _ = endings["deaf"]
    assert code == 0
    assert seconds < 9.0
    assert left == [("processing", 1, 1)] * 3


@pytest.mark.parametrize("manner", ["blocking", "native"])
def test_a_publisher_that_blocks_the_event_loop_is_ended_by_force_before_the_grace_is_over(
    endings: Mapping[str, Ending], manner: str
) -> None:
    (code, seconds), left, worker = endings[manner]
    assert code == 1
    assert seconds < GRACE
    assert left == [("processing", 1, 1)] * 3
    (line,) = worker.events("drain stuck and ended by force")
    assert "await publisher.publish(" in line["stack"]


def test_a_publisher_that_cannot_be_closed_costs_no_more_than_its_step(
    endings: Mapping[str, Ending],
) -> None:
    (code, seconds), left, worker = endings["clinging"]
    worker.wait_for("closing", 0.0)
    assert code == 0
    assert seconds < 5.0
    assert left == [("done", 1, 1)] * 3
