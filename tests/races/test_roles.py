"""The roles are made while others use the tables: nobody is refused, and nobody waits for ever."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING

import psycopg
import pytest

from pgoutbox.database import migrate
from tests.support.dispatching import Scripted, dispatching, row, to
from tests.support.outbox_rows import insert
from tests.support.roles import login_role
from tests.support.waiting import until_waiting

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.support.roles import Role

RECEIVE = b"INSERT INTO outbox_inbox (consumer, message_id) VALUES ('c', gen_random_uuid())"
ENQUEUE = b"SELECT outbox_enqueue('t', 'i', 'e', '1')"
WORKER = (
    "SELECT, UPDATE, DELETE ON outbox",
    "SELECT, UPDATE ON outbox_wakeup",
    "SELECT, INSERT, UPDATE, DELETE ON outbox_workers",
    "SELECT ON outbox_migrations",
    "EXECUTE ON FUNCTION outbox_archive_partitions()",
)


class Roles(threading.Thread):
    """`migrate --roles` in a thread of its own."""

    def __init__(self, dsn: str) -> None:
        super().__init__(daemon=True)
        self.conn = psycopg.connect(dsn, autocommit=True)
        self.failure: Exception | None = None

    def run(self) -> None:
        try:
            with self.conn:
                migrate.apply(self.conn, schema="public", roles=True)
        except Exception as error:  # noqa: BLE001 - the test tells
            self.failure = error

    def ended(self) -> Exception | None:
        self.join(timeout=30)
        assert not self.is_alive()
        return self.failure


@pytest.fixture
def plain(empty_dsn: str) -> Iterator[psycopg.Connection]:
    """To a database that was migrated without roles."""
    with psycopg.connect(empty_dsn, autocommit=True) as conn:
        migrate.apply(conn, schema="public")
        yield conn


def owner(conn: psycopg.Connection) -> str:
    found = conn.execute(
        "SELECT pg_get_userbyid(relowner) FROM pg_class WHERE oid = 'outbox'::regclass"
    ).fetchone()
    assert found is not None
    return str(found[0])


@pytest.mark.parametrize("order", [(RECEIVE, ENQUEUE), (ENQUEUE, RECEIVE)], ids=["in", "out"])
def test_a_consumer_that_enqueues_and_the_making_of_roles_do_not_block_each_other(
    empty_dsn: str, plain: psycopg.Connection, order: tuple[bytes, bytes]
) -> None:
    roles = Roles(empty_dsn)
    with psycopg.connect(empty_dsn) as consumer:
        consumer.execute(order[0])
        roles.start()
        until_waiting(plain, roles.conn.info.backend_pid, on="relation")
        consumer.execute(order[1])
    assert roles.ended() is None
    assert owner(plain) == "outbox_owner"


def test_tables_that_stay_in_use_are_left_as_they_were(
    empty_dsn: str, plain: psycopg.Connection
) -> None:
    before = owner(plain)
    roles = Roles(empty_dsn)
    with psycopg.connect(empty_dsn) as report:
        report.execute("SELECT FROM outbox")
        roles.start()
        until_waiting(plain, roles.conn.info.backend_pid, on="relation")
        # Others do not queue behind it for longer than a moment.
        plain.execute("SET lock_timeout = '1s'")
        plain.execute(ENQUEUE)
        assert "in use for more than five seconds" in str(roles.ended())
    assert owner(plain) == before


@pytest.fixture
def worker(empty_dsn: str, plain: psycopg.Connection) -> Iterator[Role]:
    """A login with the rights of a worker, from before there were roles."""
    assert owner(plain)
    with login_role(empty_dsn, *WORKER) as role:
        yield role


async def test_workers_go_on_while_the_roles_are_made_and_afterwards(
    empty_dsn: str, plain: psycopg.Connection, worker: Role
) -> None:
    publisher = Scripted()
    roles = Roles(empty_dsn)
    async with dispatching(worker.dsn, to(publisher)) as running:
        numbers = [insert(plain) for _ in range(20)]
        await running.events.finished(5)
        roles.start()
        while roles.is_alive():
            numbers.append(await asyncio.to_thread(insert, plain))
        assert roles.ended() is None
        numbers.append(insert(plain))
        await running.events.finished(len(numbers))
        assert {row(plain, number)["status"] for number in numbers} == {"done"}
    assert owner(plain) == "outbox_owner"
