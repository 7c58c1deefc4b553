"""A dedup key is one message as long as its row exists, and one message id for ever."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any
from uuid import UUID

import psycopg
import pytest
from hypothesis import given, settings, strategies as st

import pgoutbox
from pgoutbox import Message
from pgoutbox.producer.ids import id_of_dedup_key

if TYPE_CHECKING:
    from collections.abc import Iterator

KEYED = Message(
    aggregate_type="order",
    aggregate_id="42",
    event_type="OrderPaid",
    payload=1,
    dedup_key="order-42-paid",
)
Path = Callable[[psycopg.Connection[Any], Message], UUID]


def by_enqueue(conn: psycopg.Connection[Any], message: Message) -> UUID:
    return pgoutbox.enqueue(conn, message)


def by_enqueue_many(conn: psycopg.Connection[Any], message: Message) -> UUID:
    first, second = pgoutbox.enqueue_many(conn, [message, message])
    assert first == second
    return first


def by_function(conn: psycopg.Connection[Any], message: Message) -> UUID:
    found = conn.execute(
        "SELECT outbox_enqueue('order', '42', 'OrderPaid', '1', "
        "dedup_key => %s, ordering_key => %s)",
        [message.dedup_key, message.ordering_key],
    ).fetchone()
    assert found is not None
    message_id: UUID = found[0]
    return message_id


def by_plain_insert(conn: psycopg.Connection[Any], message: Message) -> UUID:
    conn.execute(
        "INSERT INTO outbox (aggregate_type, aggregate_id, event_type, payload, "
        "                    dedup_key, ordering_key) "
        "VALUES ('order', '42', 'OrderPaid', '1', %s, %s) ON CONFLICT DO NOTHING",
        [message.dedup_key, message.ordering_key],
    )
    return stored(conn)[0]


PATHS: list[Path] = [by_enqueue, by_enqueue_many, by_function, by_plain_insert]


def stored(conn: psycopg.Connection[Any]) -> list[UUID]:
    return [found for (found,) in conn.execute("SELECT message_id FROM outbox ORDER BY id")]


@pytest.mark.parametrize("ordering_key", [None, "lane"])
@pytest.mark.parametrize("repeat", PATHS)
@pytest.mark.parametrize("first", PATHS)
def test_a_repeat_inserts_nothing_and_returns_the_same_id_by_every_path(
    conn: psycopg.Connection, first: Path, repeat: Path, ordering_key: str | None
) -> None:
    message = replace(KEYED, ordering_key=ordering_key)
    with conn.transaction():
        message_id = first(conn, message)
    with conn.transaction():
        assert repeat(conn, message) == message_id
    assert stored(conn) == [message_id]


@pytest.mark.parametrize("path", PATHS)
def test_a_repeat_after_the_row_is_gone_is_a_new_row_with_the_old_id(
    conn: psycopg.Connection, path: Path
) -> None:
    with conn.transaction():
        message_id = path(conn, KEYED)
    conn.execute("DELETE FROM outbox")
    with conn.transaction():
        assert path(conn, KEYED) == message_id
    assert stored(conn) == [message_id]


def test_a_finished_row_still_holds_its_key(conn: psycopg.Connection) -> None:
    with conn.transaction():
        pgoutbox.enqueue(conn, KEYED)
    conn.execute("UPDATE outbox SET status = 'done', done_at = now(), pending_since = NULL")
    with conn.transaction():
        pgoutbox.enqueue(conn, KEYED)
    assert len(stored(conn)) == 1


def test_the_first_message_of_a_key_stays_as_it_is(conn: psycopg.Connection) -> None:
    with conn.transaction():
        pgoutbox.enqueue_many(conn, [KEYED, replace(KEYED, payload=2)])
        pgoutbox.enqueue(conn, replace(KEYED, payload=3))
    assert conn.execute("SELECT payload FROM outbox").fetchall() == [(1,)]


def test_repeats_among_others_leave_the_others_alone(conn: psycopg.Connection) -> None:
    other = replace(KEYED, dedup_key=None)
    with conn.transaction():
        pgoutbox.enqueue_many(conn, [KEYED, other, KEYED, other])
    assert len(stored(conn)) == 3


@pytest.fixture(scope="module")
def derive(server_dsn: str, template: str) -> Iterator[Callable[[str], UUID]]:
    """The function of the real schema, on one connection for all examples."""
    with psycopg.connect(server_dsn, autocommit=True) as admin:
        name = f"pgoutbox_ids_{template}"
        admin.execute(f"CREATE DATABASE {name} TEMPLATE {template}".encode())
        with psycopg.connect(server_dsn, dbname=name, autocommit=True) as conn:

            def of(key: str) -> UUID:
                found = conn.execute("SELECT outbox_message_id(%s)", [key]).fetchone()
                assert found is not None
                message_id: UUID = found[0]
                return message_id

            yield of
        admin.execute(f"DROP DATABASE {name} WITH (FORCE)".encode())


@settings(deadline=None)
@given(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1))
def test_python_and_sql_derive_the_same_id(derive: Callable[[str], UUID], key: str) -> None:
    assert derive(key) == id_of_dedup_key(key)
