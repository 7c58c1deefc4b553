"""What takes as long as a lease, a grace or a sign of life: the worker's manners over seconds.

Most of that is waiting, so all spells are gone through side by side, and each test asks how its
own one went. Among them are the ends of workers: nothing that hangs can keep one past its grace,
not a database and not a publisher.
"""

from __future__ import annotations

import signal
import threading
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from tests.support.endings import GONE, SILENT, all_endings
from tests.support.observing import count, eventually, rows
from tests.support.outbox_rows import fill
from tests.support.proxy import Proxy
from tests.support.receiver import Receiver, message_ids
from tests.support.workers import GRACE, WorkerProcess

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

    from tests.support.endings import Ending
    from tests.support.observing import Conn

HEARTBEAT, ANY_CLAIM = b"INTO outbox_workers", b"SKIP LOCKED"

Spells = dict[str, Future[Any]]


@pytest.fixture(scope="module")
def spells(new_database: Callable[[], str], publishers: Path) -> Iterator[Spells]:
    """All of them, under way."""
    every = (idle, outage, silence, deafness, death)
    signalled = threading.Event()
    with ThreadPoolExecutor(len(every) + 1) as threads:
        ends = threads.submit(all_endings, new_database, publishers, signalled.set)
        # Not all at once: the start of so many workers would disturb those that are measured.
        ends.add_done_callback(lambda _: signalled.set())
        signalled.wait()
        under_way = {spell.__name__: threads.submit(spell, new_database()) for spell in every}
        yield under_way | {"endings": ends}


def endings(spells: Spells) -> Mapping[str, Ending]:
    """How the workers ended that were told to, by their trouble."""
    ends: Mapping[str, Ending] = spells["endings"].result()
    return ends


def connected(dsn: str) -> Conn:
    return psycopg.connect(dsn, autocommit=True)


def all_done(conn: Conn, number: int, within: float) -> float:
    """Wait until so many messages are done; the seconds that it took."""
    return eventually(
        lambda: count(conn, "status = 'done'") == number, f"{number} deliveries", within
    )


def test_an_idle_worker_asks_twice_a_second_at_most(spells: Spells) -> None:
    spells["idle"].result()


def idle(dsn: str) -> None:
    # Expired leases are looked for the less often, the longer a lease is.
    default = {"LEASE__DURATION": "30", "LEASE__RENEW": "10"}
    with Proxy(dsn) as proxy, WorkerProcess(proxy.dsn, "noop://", **default).started() as worker:
        worker.wait_for("wakeup mode", mode="notify")
        proxy.until_count(ANY_CLAIM, 10)  # the quick polls of the start
        statements, cpu = proxy.executions(), worker.cpu_seconds()
        # The first heartbeat came at the start; until the next one all but the pruning is due.
        seconds = proxy.until_count(HEARTBEAT, 2)
        assert (proxy.executions() - statements) / seconds <= 2.0
        assert (worker.cpu_seconds() - cpu) / seconds < 0.05
        assert worker.stop().code == 0


def test_an_outage_costs_no_exit_and_no_processor_and_ends_within_five_seconds(
    spells: Spells,
) -> None:
    spells["outage"].result()


def outage(dsn: str) -> None:
    with (
        connected(dsn) as conn,
        Proxy(dsn) as proxy,
        WorkerProcess(proxy.dsn, "noop://").started() as worker,
    ):
        worker.wait_for("wakeup mode", mode="notify")
        proxy.refuse()
        worker.wait_for("database failed", doing="claim")
        cpu, lines = worker.cpu_seconds(), len(worker.lines)
        tries = 16
        seconds = proxy.until_connected(tries)
        assert tries / seconds < 4.0
        assert (worker.cpu_seconds() - cpu) / seconds < 0.05
        assert (len(worker.lines) - lines) / seconds < 1.0
        assert (worker.get("/livez"), worker.get("/readyz")) == (200, 200)

        fill(conn, 10)
        proxy.accept()
        all_done(conn, 10, within=5.0)
        worker.wait_for("wakeup mode", 5.0, mode="notify", after=lines)
        assert worker.stop().code == 0


def test_a_silent_network_ends_every_statement_and_a_worker_goes_on_once_it_flows_again(
    spells: Spells,
) -> None:
    spells["silence"].result()


def silence(dsn: str) -> None:
    with (
        connected(dsn) as conn,
        Proxy(dsn) as proxy,
        WorkerProcess(proxy.dsn, "noop://").started() as worker,
    ):
        worker.wait_for("wakeup mode", mode="notify")
        proxy.freeze()
        # A second to the next poll; then twice the statement timeout and a second.
        worker.wait_for("database failed", 5.0, doing="claim")
        # Five seconds between two signs of life, and two for the answer.
        worker.wait_for("wakeup mode", 8.0, mode="poll")
        # What was sent before arrives now; a claim among it would lease what nobody knows of.
        proxy.thaw()
        worker.wait_for("database recovered", 5.0)
        fill(conn, 10)
        all_done(conn, 10, within=2.0)
        assert worker.stop().code == 0


def test_with_a_dead_listening_connection_messages_are_found_by_polling(spells: Spells) -> None:
    spells["deafness"].result()


def deafness(dsn: str) -> None:
    with (
        connected(dsn) as conn,
        Proxy(dsn) as proxy,
        WorkerProcess(dsn, "noop://", LISTEN_DSN=proxy.dsn).started() as worker,
    ):
        worker.wait_for("wakeup mode", mode="notify")
        proxy.freeze()
        fill(conn, 1)
        assert all_done(conn, 1, within=2.0) < 2.0
        worker.wait_for("wakeup mode", 8.0, mode="poll")
        fill(conn, 1)
        assert all_done(conn, 2, within=2.0) < 2.0
        lines = len(worker.lines)
        proxy.thaw()
        worker.wait_for("wakeup mode", 15.0, mode="notify", after=lines)
        assert worker.stop().code == 0


def test_the_messages_of_a_killed_worker_are_delivered_by_another_after_the_lease(
    spells: Spells,
) -> None:
    spells["death"].result()


def death(dsn: str) -> None:
    patient = {"DESTINATIONS__DEFAULT__PUBLISH_TIMEOUT": "9", "DRAIN__SOFT": "10"}
    with connected(dsn) as conn, Receiver() as receiver:
        with WorkerProcess(dsn, receiver.url, **patient, DRAIN__GRACE="20").started() as killed:
            fill(conn, 20)
            all_done(conn, 20, within=10.0)
            receiver.hold()
            fill(conn, 10)
            receiver.until_arrived(30)
            killed.signal(signal.SIGKILL).exit()
        receiver.let_go()

        with WorkerProcess(dsn, receiver.url).started() as other:
            fill(conn, 5)
            # New messages do not wait for the leases of the dead.
            eventually(lambda: count(conn, "id > 30 AND status = 'done'") == 5, "new ones", 5.0)
            all_done(conn, 35, within=15.0)
            assert other.stop().code == 0

        assert rows(conn, "lease_version, attempts, reclaims")[20:30] == [(2, 2, 0)] * 10
        assert set(receiver.arrivals) == message_ids(conn)
        repeated = {message for message, times in receiver.arrivals.items() if times > 1}
        assert repeated == {str(row[0]) for row in rows(conn, "message_id")[20:30]}


@pytest.mark.parametrize("trouble", [SILENT, GONE])
def test_without_its_database_a_worker_ends_in_time_and_leaves_the_rows_to_their_lease(
    spells: Spells, trouble: str
) -> None:
    (code, seconds), left, worker = endings(spells)[trouble]
    assert code == 0
    assert seconds < GRACE - 1
    assert left == [("processing", 1, 1)] * 3
    assert worker.events("drain ended")[0]["abandoned"] == 3


def test_a_publisher_that_ignores_its_cancellation_delays_the_exit_by_the_cancel_wait_only(
    spells: Spells,
) -> None:
    (code, seconds), left, _ = endings(spells)["deaf"]
    assert code == 0
    assert seconds < 9.0
    assert left == [("processing", 1, 1)] * 3


@pytest.mark.parametrize("manner", ["blocking", "native"])
def test_a_publisher_that_blocks_the_event_loop_is_ended_by_force_before_the_grace_is_over(
    spells: Spells, manner: str
) -> None:
    (code, seconds), left, worker = endings(spells)[manner]
    assert code == 1
    assert seconds < GRACE
    assert left == [("processing", 1, 1)] * 3
    (line,) = worker.events("drain stuck and ended by force")
    assert "await publisher.publish(" in line["stack"]


def test_a_publisher_that_cannot_be_closed_costs_no_more_than_its_step(
    spells: Spells,
) -> None:
    (code, seconds), left, worker = endings(spells)["clinging"]
    worker.wait_for("closing", 0.0)
    assert code == 0
    assert seconds < 5.0
    assert left == [("done", 1, 1)] * 3
