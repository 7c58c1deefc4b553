"""Behind a pooler in transaction mode: what works as ever, and what is found out and told.

Needs PGOUTBOX_TEST_POOLER, the ``host:port`` of a PgBouncer before the server of PGOUTBOX_TEST_DSN.
The dispatcher's own tests go through it as well where it is set.
"""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any

import asyncpg
import psycopg
import pytest
import sqlalchemy as sa
from click.testing import CliRunner
from psycopg.conninfo import conninfo_to_dict
from sqlalchemy.orm import Session

import pgoutbox
from pgoutbox import Message
from pgoutbox.cli.main import group
from pgoutbox.database import migrate
from pgoutbox.producer import asyncpg as with_asyncpg, sqlalchemy as with_sqlalchemy
from tests.support.outbox_rows import insert
from tests.support.producing import asyncpg_options, engine_options, url
from tests.support.receiver import Receiver
from tests.support.roles import as_worker, through_pooler
from tests.support.workers import WorkerProcess

if TYPE_CHECKING:
    from click.testing import Result

pytestmark = pytest.mark.skipif(
    not os.environ.get("PGOUTBOX_TEST_POOLER"), reason="PGOUTBOX_TEST_POOLER names no pooler"
)

PLACED = Message(aggregate_type="order", aggregate_id="7", event_type="Placed", payload={"n": 1})
DEAD = {"status": "dead", "pending_since": None, "attempts": 12, "last_error": "410 Gone"}


@pytest.fixture
def pooled(dsn: str) -> str:
    return through_pooler(dsn)


def run(dsn: str, *words: str, **env: str) -> Result:
    environ = {"PGOUTBOX_DSN": dsn, "PGOUTBOX_DSN_FILE": None, **env}
    return CliRunner().invoke(group, list(words), env=environ, catch_exceptions=False)


def test_check_finds_the_pooler_and_says_that_workers_poll(pooled: str) -> None:
    result = run(as_worker(pooled), "check", "--to", "noop://", "--json")
    told = json.loads(result.stdout)
    assert (result.exit_code, told["problems"]) == (0, [])
    assert told["facts"]["pooler"] == "in transaction mode"
    assert "polling only" in str(told["warnings"])


def test_a_worker_delivers_by_polling(dsn: str, conn: psycopg.Connection) -> None:
    with Receiver() as receiver, WorkerProcess(dsn, receiver.url).started() as worker:
        for number in range(50):
            insert(conn, aggregate_id=str(number), ordering_key=f"k{number % 5}")
        receiver.until_arrived(50)
        assert worker.stop().code == 0
    assert set(receiver.arrivals.values()) == {1}


def test_a_connection_of_its_own_for_listening_brings_notifications_back(
    dsn: str, conn: psycopg.Connection
) -> None:
    with (
        Receiver() as receiver,
        WorkerProcess(
            dsn, receiver.url, LISTEN_DSN=as_worker(dsn), WAKEUP__MODE="notify"
        ).started() as worker,
    ):
        insert(conn)
        receiver.until_arrived(1)
        assert not worker.events("notifications do not arrive")
    told = json.loads(
        run(
            as_worker(through_pooler(dsn)),
            *("check", "--to", "noop://", "--json"),
            PGOUTBOX_LISTEN_DSN=as_worker(dsn),
        ).stdout
    )
    assert told["warnings"] == []


def test_migrating_works_where_nothing_lasts_between_statements(
    empty_dsn: str,
) -> None:
    result = run(through_pooler(empty_dsn), "migrate")
    assert result.exit_code == 0, result.stderr
    assert run(through_pooler(empty_dsn), "migrate", "--check").exit_code == 0
    with psycopg.connect(empty_dsn, autocommit=True) as conn:
        assert migrate.pending(conn, schema="public") == []


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["status"], "mail"),
        (["doctor"], "no worker serves mail"),
        (["dead", "list"], "410 Gone"),
        (["show", "DEAD"], "it blocks the messages behind it"),
        (["dead", "requeue", "--all", "--reason", "repaired", "--yes"], "1 dead message requeued"),
        (["dead", "skip", "DEAD", "--reason", "never mind"], "goes on without message"),
        (["dead", "discard", "--all", "--reason", "tests", "--yes"], "dead messages discarded"),
        (["prune", "--older-than", "1d", "--yes"], "1 delivered message deleted"),
        (["enqueue", "--aggregate-type", "a", "--aggregate-id", "1", "--event-type", "E"], ""),
    ],
)
def test_every_command_works(
    pooled: str, conn: psycopg.Connection, words: list[str], said: str
) -> None:
    insert(conn, destination="mail")
    insert(conn, status="done", pending_since=None, done_at="2020-01-01Z")
    head = insert(conn, **DEAD, ordering_key="k")
    if words[:2] == ["dead", "discard"]:
        insert(conn, **DEAD)
    result = run(pooled, *(str(head) if word == "DEAD" else word for word in words))
    assert said in result.stdout, result.stderr


def test_producers_enqueue_with_prepared_statements_off(
    pooled: str, conn: psycopg.Connection
) -> None:
    for _ in range(20):
        with psycopg.connect(pooled, prepare_threshold=None) as producer:
            pgoutbox.enqueue(producer, PLACED)
    engine = sa.create_engine(
        url(pooled, "psycopg"),
        connect_args={"prepare_threshold": None},
        **engine_options(autocommit=False),
    )
    with Session(engine) as session, session.begin():
        with_sqlalchemy.enqueue(session, PLACED)
    assert conn.execute("SELECT count(*) FROM outbox").fetchone() == (21,)


async def test_asyncpg_enqueues_without_its_cache_of_statements(
    pooled: str, conn: psycopg.Connection
) -> None:
    options: dict[str, Any] = asyncpg_options(pooled) | {"statement_cache_size": 0}
    assert conninfo_to_dict(pooled)["port"] == str(options["port"])
    for _ in range(20):
        producer = await asyncpg.connect(**options)
        async with producer.transaction():
            await with_asyncpg.enqueue(producer, PLACED)
        await producer.close()
    assert conn.execute("SELECT count(*) FROM outbox").fetchone() == (20,)
