"""A worker outlives its database's troubles: it loses nothing, repeats nothing, and comes back."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import pytest

from tests.support.observing import count, eventually, rows
from tests.support.outbox_rows import fill
from tests.support.proxy import Proxy
from tests.support.roles import login_role
from tests.support.workers import WorkerProcess

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.support.observing import Conn
    from tests.support.receiver import Receiver


@pytest.fixture
def proxy(dsn: str) -> Iterator[Proxy]:
    with Proxy(dsn) as running:
        yield running


def all_done(conn: Conn, number: int) -> bool:
    return count(conn, "status = 'done'") == number


def test_a_finalize_whose_answer_was_lost_is_neither_a_lost_lease_nor_published_again(
    conn: Conn, proxy: Proxy, receiver: Receiver
) -> None:
    with WorkerProcess(proxy.dsn, receiver.url).started() as worker:
        fill(conn, 1)
        eventually(partial(all_done, conn, 1), "a first delivery")
        lost = proxy.lose_answer(b"decided")
        fill(conn, 20)
        assert lost.wait(10)
        eventually(partial(all_done, conn, 21), "all deliveries")
        worker.wait_for("database failed", doing="finalize")
        ended = (worker.stop().code, worker.events("lease lost"), worker.events("drain ended"))

    assert ended[:2] == (0, [])
    assert ended[2][0]["abandoned"] == 0
    assert set(receiver.arrivals.values()) == {1}
    assert rows(conn, "status, attempts, lease_version") == [("done", 1, 1)] * 21


@pytest.mark.parametrize("mode", ["auto", "poll"])
def test_behind_a_pooler_in_transaction_mode_everything_works_without_session_settings(
    conn: Conn, proxy: Proxy, receiver: Receiver, mode: str
) -> None:
    settings = {"DATABASE__POOLER": "transaction", "WAKEUP__MODE": mode}
    with WorkerProcess(proxy.dsn, receiver.url, **settings).started() as worker:
        for number in range(1, 8):
            fill(conn, 10)
            eventually(partial(all_done, conn, 10 * number), "deliveries")
        assert worker.stop().code == 0

    assert proxy.prepared == set()
    assert set(receiver.arrivals.values()) == {1}
    assert conn.execute("SELECT FROM outbox_workers").rowcount == 0


def test_connections_that_are_refused_for_their_number_are_waited_for(
    conn: Conn, dsn: str, receiver: Receiver
) -> None:
    every_table = "SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA public"
    with (
        login_role(dsn, every_table) as role,
        Proxy(role.dsn) as proxy,
        WorkerProcess(proxy.dsn, receiver.url).started() as worker,
    ):
        worker.wait_for("wakeup mode", mode="notify")
        conn.execute(f"ALTER ROLE {role.name} CONNECTION LIMIT 0".encode())
        mine = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = %s"
        conn.execute(mine.encode(), [role.name])
        worker.wait_for("wakeup mode", mode="poll")
        worker.wait_for("database failed")
        fill(conn, 10)
        # Long enough for every one who connects to have been refused again and again.
        proxy.until_connected(6)
        conn.execute(f"ALTER ROLE {role.name} CONNECTION LIMIT 2".encode())
        # One for listening, and one of the three that the pool would like to have.
        eventually(partial(all_done, conn, 10), "deliveries", 5.0)
        assert worker.stop().code == 0
