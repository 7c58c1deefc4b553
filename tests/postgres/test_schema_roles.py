from __future__ import annotations

import uuid
from typing import TYPE_CHECKING

import psycopg
import pytest
from psycopg import errors, sql

from tests.support.roles import login_role

if TYPE_CHECKING:
    from collections.abc import Iterator

PRODUCER = "outbox_producer"


@pytest.fixture
def producer(dsn: str) -> Iterator[psycopg.Connection]:
    """May insert a message's own columns, and nothing else."""
    with (
        login_role(dsn, PRODUCER) as role,
        psycopg.connect(role.dsn, autocommit=True) as connection,
    ):
        yield connection


@pytest.fixture
def stranger(dsn: str) -> Iterator[psycopg.Connection]:
    with login_role(dsn) as role, psycopg.connect(role.dsn, autocommit=True) as connection:
        yield connection


def count(conn: psycopg.Connection) -> int:
    row = conn.execute("SELECT count(*) FROM outbox").fetchone()
    assert row is not None
    found: int = row[0]
    return found


@pytest.mark.parametrize("wanted", [False, True])
def test_a_producer_that_may_only_insert_can_use_lanes_dedup_keys_and_schedules(
    conn: psycopg.Connection, producer: psycopg.Connection, *, wanted: bool
) -> None:
    conn.execute("UPDATE outbox_wakeup SET wanted = %s", [wanted])
    producer.execute("""
        INSERT INTO outbox (aggregate_type, aggregate_id, event_type, payload,
                            ordering_key, dedup_key, available_at)
        VALUES ('t', 'i', 'e', '1', 'k', 'd', now()), ('t', 'i', 'e', '1', NULL, NULL, now() + '1h')
    """)
    assert count(conn) == 2


@pytest.mark.parametrize("wanted", [False, True])
def test_a_producer_that_may_only_insert_can_call_outbox_enqueue(
    conn: psycopg.Connection, producer: psycopg.Connection, *, wanted: bool
) -> None:
    conn.execute("UPDATE outbox_wakeup SET wanted = %s", [wanted])
    call = """
        SELECT outbox_enqueue('t', 'i', 'e', body => 'x', content_type => 'text/plain',
                              ordered => true, dedup_key => 'd', delay => '1 second')
    """
    assert producer.execute(call).fetchone() == producer.execute(call).fetchone()
    assert count(conn) == 1


@pytest.mark.parametrize("name", ["status", "lease_version", "attempts", "created_at", "done_at"])
def test_a_producer_cannot_write_what_workers_write(
    producer: psycopg.Connection, name: str
) -> None:
    with pytest.raises(errors.InsufficientPrivilege):
        producer.execute(
            sql.SQL("INSERT INTO outbox ({}) VALUES (NULL)").format(sql.Identifier(name))
        )


@pytest.mark.parametrize(
    "statement",
    [
        b"SELECT FROM outbox",
        b"UPDATE outbox SET aggregate_id = 'x'",
        b"DELETE FROM outbox",
        b"SELECT FROM outbox_wakeup",
        b"SELECT FROM outbox_inbox",
        b"SELECT FROM outbox_audit",
        b"SELECT nextval('outbox_id_seq')",
        b"SELECT outbox_stats()",
    ],
)
def test_a_producer_can_do_nothing_but_insert(
    producer: psycopg.Connection, statement: bytes
) -> None:
    with pytest.raises(errors.InsufficientPrivilege):
        producer.execute(statement)


def test_a_role_without_the_grant_cannot_insert_through_the_function_either(
    stranger: psycopg.Connection,
) -> None:
    with pytest.raises(errors.InsufficientPrivilege):
        stranger.execute("SELECT outbox_enqueue('t', 'i', 'e', '1')")


def test_only_who_was_granted_it_can_call_outbox_stats(
    dsn: str, stranger: psycopg.Connection
) -> None:
    with pytest.raises(errors.InsufficientPrivilege):
        stranger.execute("SELECT outbox_stats()")
    with (
        login_role(dsn, "EXECUTE ON FUNCTION outbox_stats(integer)") as role,
        psycopg.connect(role.dsn) as scaler,
    ):
        assert scaler.execute("SELECT outbox_stats() ->> 'cap'").fetchone() == ("10000",)


def test_the_enqueue_function_refuses_what_contradicts_itself(conn: psycopg.Connection) -> None:
    contradictions = (
        (b"dedup_key => 'd', message_id => gen_random_uuid()", "dedup_key or message_id"),
        (b"available_at => now(), delay => '1s'", "available_at or delay"),
        (b"ordering_key => 'k', ordered => true", "ordering_key or ordered"),
    )
    for arguments, said in contradictions:
        with pytest.raises(errors.InvalidParameterValue, match=said):
            conn.execute(b"SELECT outbox_enqueue('t', 'i', 'e', '1', " + arguments + b")")
    assert count(conn) == 0


def test_the_enqueue_function_stores_what_it_was_given(conn: psycopg.Connection) -> None:
    chosen = uuid.uuid4()
    assert conn.execute(
        """SELECT outbox_enqueue('t', 'i', 'e', NULL, 'x', 'text/plain', 'bank', '{"a": "b"}',
                                 'k', NULL, %s, '2999-01-01Z')""",
        [chosen],
    ).fetchone() == (chosen,)
    assert conn.execute("""
        SELECT aggregate_type, aggregate_id, event_type, payload, body, content_type, destination,
               headers, ordering_key, dedup_key, message_id, available_at = '2999-01-01Z'
          FROM outbox
    """).fetchone() == (
        *("t", "i", "e", None, b"x", "text/plain", "bank", {"a": "b"}, "k", None, chosen, True),
    )


def test_a_delay_counts_from_the_transactions_start(conn: psycopg.Connection) -> None:
    conn.execute("SELECT outbox_enqueue('t', 'i', 'e', '1', delay => '90 seconds')")
    assert conn.execute(
        "SELECT available_at - created_at = '90 seconds', pending_since = available_at FROM outbox"
    ).fetchone() == (True, True)
