"""Many messages by one statement: all or none, lanes in one order for every writer."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any, assert_type
from uuid import UUID

import psycopg
import pytest

import pgoutbox
from pgoutbox import InvalidMessage, Message
from pgoutbox.producer import checked as module

GOOD = Message(aggregate_type="order", aggregate_id="42", event_type="OrderPaid", payload={"n": 1})


def in_lane(key: str | None, number: int, destination: str = "default") -> Message:
    return replace(GOOD, ordering_key=key, payload=number, destination=destination)


def column(conn: psycopg.Connection[Any], name: str) -> list[Any]:
    found = conn.execute(f"SELECT {name} FROM outbox ORDER BY id".encode())  # noqa: S608 - ours
    return [value for (value,) in found]


def test_the_ids_come_back_in_the_given_order(conn: psycopg.Connection) -> None:
    messages = [in_lane("b", 1), in_lane(None, 2), in_lane("a", 3), in_lane(None, 4)]
    with conn.transaction():
        ids = assert_type(pgoutbox.enqueue_many(conn, iter(messages)), list[UUID])
    stored: dict[UUID, int] = dict(
        conn.execute("SELECT message_id, payload FROM outbox").fetchall()
    )
    assert [stored[message_id] for message_id in ids] == [1, 2, 3, 4]


async def test_an_async_connection_inserts_when_awaited(
    aconn: psycopg.AsyncConnection, conn: psycopg.Connection
) -> None:
    async with aconn.transaction():
        with pytest.raises(InvalidMessage):
            _ = pgoutbox.enqueue_many(aconn, [replace(GOOD, event_type="")])
        ids = assert_type(await pgoutbox.enqueue_many(aconn, [GOOD, GOOD]), list[UUID])
        assert column(conn, "message_id") == []
    assert column(conn, "message_id") == ids


def test_unordered_messages_come_first_and_lanes_sorted_after_them(
    conn: psycopg.Connection,
) -> None:
    given = [
        in_lane("z", 1, "beta"),
        in_lane("b", 2),
        in_lane(None, 3, "beta"),
        in_lane("a", 4, "beta"),
        in_lane("B", 5),
        in_lane(None, 6),
        in_lane("b", 7),
        in_lane("é", 8, "beta"),
        in_lane(None, 9, "beta"),
    ]
    with conn.transaction():
        pgoutbox.enqueue_many(conn, given)
    assert column(conn, "payload") == [3, 6, 9, 4, 1, 8, 5, 2, 7]


def test_lanes_keep_their_order_over_many_rows(conn: psycopg.Connection) -> None:
    given = [in_lane(f"k{number % 7}", number) for number in range(2_000)]
    with conn.transaction():
        pgoutbox.enqueue_many(conn, given)
    for lane in range(7):
        stored = conn.execute(
            "SELECT payload FROM outbox WHERE ordering_key = %s ORDER BY id", [f"k{lane}"]
        ).fetchall()
        assert [number for (number,) in stored] == list(range(lane, 2_000, 7))


def test_every_kind_of_message_fits_into_one_call(conn: psycopg.Connection) -> None:
    at = datetime(2099, 1, 1, tzinfo=UTC)
    with conn.transaction():
        pgoutbox.enqueue_many(
            conn,
            [
                replace(GOOD, payload=None),
                replace(GOOD, payload=b"\x00\xff,\\\"{}'", content_type="x/y"),
                replace(GOOD, payload='quotes "\\ and {braces}, NULL', headers={"a": '"\\{},'}),
                replace(GOOD, available_at=at),
                replace(GOOD, delay=timedelta(microseconds=2**33)),
            ],
        )
    assert column(conn, "payload::text")[:2] == ["null", None]
    assert column(conn, "body")[1] == b"\x00\xff,\\\"{}'"
    assert column(conn, "payload")[2] == 'quotes "\\ and {braces}, NULL'
    assert column(conn, "headers")[2] == {"a": '"\\{},'}
    assert column(conn, "available_at")[3] == at
    assert column(conn, "available_at - created_at")[4] == timedelta(microseconds=2**33)


def test_no_messages_are_no_statement(conn: psycopg.Connection) -> None:
    conn.close()
    assert pgoutbox.enqueue_many(conn, [], allow_autocommit=True) == []


async def test_no_messages_are_awaitable_too(aconn: psycopg.AsyncConnection) -> None:
    assert await pgoutbox.enqueue_many(aconn, [], allow_autocommit=True) == []


def test_one_bad_message_is_named_by_its_index_and_nothing_is_inserted(
    conn: psycopg.Connection,
) -> None:
    bad = replace(GOOD, payload={"items": [{"price": float("inf")}]})
    with conn.transaction():
        with pytest.raises(InvalidMessage) as refused:
            pgoutbox.enqueue_many(conn, [GOOD] * 57 + [bad] + [GOOD] * 42)
        assert column(conn, "id") == []
        pgoutbox.enqueue(conn, GOOD)
    assert refused.value.path == "messages[57].payload.items[0].price"
    assert len(column(conn, "id")) == 1


def test_something_else_than_messages_is_named(conn: psycopg.Connection) -> None:
    wrong: list[Any] = [GOOD, [GOOD, {"event_type": "x"}], 5]
    paths = []
    for value in wrong:
        with pytest.raises(InvalidMessage) as refused:
            pgoutbox.enqueue_many(conn, value, allow_autocommit=True)
        paths.append(refused.value.path)
    assert paths == ["messages", "messages[1]", "messages"]


def test_a_call_too_large_for_one_statement_is_refused(
    conn: psycopg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MAX_CALL_BYTES", 30)
    with pytest.raises(InvalidMessage, match=r"messages\[3\]: .* split the call"):
        pgoutbox.enqueue_many(conn, [GOOD] * 4, allow_autocommit=True)
    assert column(conn, "id") == []


def test_more_lanes_than_the_lock_table_holds_are_refused_with_advice_and_nothing_is_stored(
    conn: psycopg.Connection, dsn: str
) -> None:
    found = conn.execute(
        """SELECT current_setting('max_locks_per_transaction')::int
                * (current_setting('max_connections')::int
                   + current_setting('max_prepared_transactions')::int)"""
    ).fetchone()
    assert found is not None
    # The table has some room to spare beyond what is promised.
    lanes = [in_lane(f"k{number}", number) for number in range(3 * found[0])]
    with psycopg.connect(dsn) as business:
        with pytest.raises(psycopg.errors.OutOfMemory) as refused:
            pgoutbox.enqueue_many(business, lanes)
        assert refused.value.sqlstate == "53200"
        assert "raise max_locks_per_transaction" in refused.value.__notes__[0]
        business.rollback()
        pgoutbox.enqueue_many(business, lanes[: found[0] // 4])
        business.commit()
    assert len(column(conn, "id")) == found[0] // 4
