from __future__ import annotations

import hashlib
import uuid
from typing import TYPE_CHECKING, Any

import psycopg
import pytest
from psycopg import errors

from tests.support.outbox_rows import PLAIN, insert, insert_into

if TYPE_CHECKING:
    from collections.abc import Iterator

NAMESPACE = bytes.fromhex("7c1d1c5e9f0b4b6a8f3e2a5d6c9b0e17")
MANY = """
    INSERT INTO outbox (aggregate_type, aggregate_id, event_type, payload,
                        destination, available_at)
    SELECT 't', 'i', 'e', '1', d, now() + %(delay)s::interval
      FROM unnest(%(destinations)s::text[]) d, generate_series(1, %(each)s)
"""


@pytest.fixture
def listener(dsn: str, conn: psycopg.Connection) -> Iterator[psycopg.Connection]:
    """Listens, while a worker sleeps."""
    conn.execute("UPDATE outbox_wakeup SET wanted = true")
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute("LISTEN outbox")
        yield connection


def heard(listener: psycopg.Connection, conn: psycopg.Connection) -> list[str]:
    """What was notified until now: a marker follows, and notifications keep their order."""
    conn.execute("NOTIFY outbox, 'marker'")
    payloads: list[str] = []
    for notification in listener.notifies(timeout=20):
        if notification.payload == "marker":
            return payloads
        payloads.append(notification.payload)
    raise AssertionError("the marker never came")


def many(conn: psycopg.Connection, *destinations: str, each: int = 1, delay: str = "0") -> None:
    conn.execute(MANY, {"destinations": list(destinations), "each": each, "delay": delay})


def column(conn: psycopg.Connection, name: str, number: int) -> Any:
    row = conn.execute("SELECT to_jsonb(o) -> %s FROM outbox o WHERE id = %s", [name, number])
    found = row.fetchone()
    assert found is not None
    return found[0]


def derived(key: str) -> uuid.UUID:
    """RFC 9562, version 8, computed without the database."""
    digest = bytearray(hashlib.sha256(NAMESPACE + key.encode()).digest()[:16])
    digest[6] = digest[6] & 0x0F | 0x80
    digest[8] = digest[8] & 0x3F | 0x80
    return uuid.UUID(bytes=bytes(digest))


@pytest.mark.parametrize("key", ["order-1", "zażółć", "k" * 512, "'; --"])
def test_a_dedup_key_decides_the_message_id_whatever_the_producer_chose(
    conn: psycopg.Connection, key: str
) -> None:
    row = insert_into(conn, "outbox", **PLAIN, dedup_key=key, message_id=uuid.uuid4())
    assert row["message_id"] == str(derived(key))
    assert (derived(key).version, derived(key).variant) == (8, uuid.RFC_4122)


def test_a_repeat_after_the_first_was_pruned_has_the_same_message_id(
    conn: psycopg.Connection,
) -> None:
    first = insert_into(conn, "outbox", **PLAIN, dedup_key="k")
    conn.execute("DELETE FROM outbox")
    assert insert_into(conn, "outbox", **PLAIN, dedup_key="k")["message_id"] == first["message_id"]


def test_a_repeated_dedup_key_is_refused_while_the_first_row_exists(
    conn: psycopg.Connection,
) -> None:
    insert(conn, dedup_key="k")
    with pytest.raises(errors.UniqueViolation) as refused:
        insert(conn, dedup_key="k", destination="other")
    assert refused.value.diag.constraint_name == "outbox_dedup"


def test_a_scheduled_message_is_owed_from_its_due_time_on(conn: psycopg.Connection) -> None:
    number = insert(conn, available_at="2999-01-01T00:00:00Z")
    assert column(conn, "pending_since", number) == column(conn, "available_at", number)


def test_a_message_due_in_the_past_is_owed_since_it_was_created(conn: psycopg.Connection) -> None:
    number = insert(conn, available_at="1999-01-01T00:00:00Z")
    assert column(conn, "pending_since", number) == column(conn, "created_at", number)


def test_backoff_does_not_move_the_time_since_when_a_message_is_owed(
    conn: psycopg.Connection,
) -> None:
    number = insert(conn)
    before = column(conn, "pending_since", number)
    conn.execute("UPDATE outbox SET available_at = now() + interval '1 hour'")
    assert column(conn, "pending_since", number) == before


def test_nobody_is_notified_while_no_worker_sleeps(
    conn: psycopg.Connection, listener: psycopg.Connection
) -> None:
    conn.execute("UPDATE outbox_wakeup SET wanted = false")
    many(conn, "bank", each=3)
    assert heard(listener, conn) == []


def test_a_statement_notifies_once_per_destination(
    conn: psycopg.Connection, listener: psycopg.Connection
) -> None:
    many(conn, "bank", "mail", each=50)
    assert sorted(heard(listener, conn)) == ["bank", "mail"]


def test_ten_thousand_messages_of_one_statement_are_one_notification(
    conn: psycopg.Connection, listener: psycopg.Connection
) -> None:
    many(conn, "bank", each=10_000)
    assert heard(listener, conn) == ["bank"]


def test_messages_for_later_do_not_notify(
    conn: psycopg.Connection, listener: psycopg.Connection
) -> None:
    many(conn, "bank", delay="1 hour")
    assert heard(listener, conn) == []


def test_messages_that_arrive_finished_do_not_notify(
    conn: psycopg.Connection, listener: psycopg.Connection
) -> None:
    insert(conn, status="dead", pending_since=None)
    assert heard(listener, conn) == []


def test_a_repeat_that_inserts_nothing_does_not_notify(
    conn: psycopg.Connection, listener: psycopg.Connection
) -> None:
    insert(conn, dedup_key="k")
    heard(listener, conn)
    conn.execute("SELECT outbox_enqueue('t', 'i', 'e', '1', dedup_key => 'k')")
    assert heard(listener, conn) == []


def test_a_rollback_notifies_nobody(conn: psycopg.Connection, listener: psycopg.Connection) -> None:
    with conn.transaction(force_rollback=True):
        many(conn, "bank")
    assert heard(listener, conn) == []


def test_updates_and_deletes_do_not_notify(
    conn: psycopg.Connection, listener: psycopg.Connection
) -> None:
    many(conn, "bank", each=3)
    heard(listener, conn)
    conn.execute("UPDATE outbox SET available_at = now(), last_error = 'e'")
    conn.execute("DELETE FROM outbox")
    assert heard(listener, conn) == []
