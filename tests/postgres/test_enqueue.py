"""One message, one row, one statement, in the caller's own transaction."""

from __future__ import annotations

import tempfile
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any, assert_type
from uuid import UUID
from zoneinfo import ZoneInfo

import psycopg
import pytest
from psycopg.rows import class_row, dict_row

import pgoutbox
from pgoutbox import InvalidMessage, Message, NotInTransaction
from tests.support.roles import login_role

ID = UUID("0190b9c0-0000-7000-8000-00000000abcd")
GOOD = Message(aggregate_type="order", aggregate_id="42", event_type="OrderPaid", payload={"n": 1})
FULL = Message(
    aggregate_type="order",
    aggregate_id="42",
    event_type="OrderPaid",
    payload={"price": "1.10", "list": [1, None]},
    destination="billing",
    headers={"tenant": "é"},
    content_type="application/vnd.order+json",
    ordering_key="order-42",
    message_id=ID,
    delay=timedelta(days=1, seconds=1),
)


def rows(conn: psycopg.Connection[Any]) -> list[dict[str, Any]]:
    with conn.cursor(row_factory=dict_row) as cursor:
        return cursor.execute("SELECT * FROM outbox ORDER BY id").fetchall()


def count(conn: psycopg.Connection[Any]) -> int:
    return len(rows(conn))


def test_a_message_is_committed_together_with_the_business_rows(
    conn: psycopg.Connection, dsn: str
) -> None:
    with psycopg.connect(dsn) as business:
        business.execute("CREATE TABLE orders (id int)")
        business.execute("INSERT INTO orders VALUES (42)")
        pgoutbox.enqueue(business, GOOD)
        assert count(conn) == 0
        business.commit()
        assert count(conn) == 1


def test_a_message_is_rolled_back_together_with_the_business_rows(
    conn: psycopg.Connection, dsn: str
) -> None:
    with psycopg.connect(dsn) as business:
        pgoutbox.enqueue(business, GOOD)
        business.rollback()
    assert count(conn) == 0


async def test_an_async_connection_checks_at_once_and_inserts_when_awaited(
    aconn: psycopg.AsyncConnection, conn: psycopg.Connection
) -> None:
    async with aconn.transaction():
        with pytest.raises(InvalidMessage):
            _ = pgoutbox.enqueue(aconn, replace(GOOD, event_type=""))
        payload = {"n": 1}
        pending = pgoutbox.enqueue(aconn, replace(GOOD, payload=payload))
        payload["n"] = 2
        message_id = assert_type(await pending, UUID)
        assert count(conn) == 0
    (row,) = rows(conn)
    assert (row["message_id"], row["payload"]) == (message_id, {"n": 1})


def test_a_message_becomes_the_same_row_by_every_path(conn: psycopg.Connection) -> None:
    with conn.transaction():
        pgoutbox.enqueue(conn, FULL)
        pgoutbox.enqueue_many(conn, [FULL])
        conn.execute(
            """
            INSERT INTO outbox (aggregate_type, aggregate_id, event_type, payload, destination,
                                headers, content_type, ordering_key, message_id, available_at)
            VALUES ('order', '42', 'OrderPaid', '{"price": "1.10", "list": [1, null]}', 'billing',
                    '{"tenant": "é"}', 'application/vnd.order+json', 'order-42', %s,
                    now() + interval '24:00:01')
            """,
            [ID],
        )
        conn.execute(
            """
            SELECT outbox_enqueue('order', '42', 'OrderPaid', '{"list":[1,null],"price":"1.10"}',
                                  destination => 'billing', headers => '{"tenant":"é"}',
                                  content_type => 'application/vnd.order+json',
                                  ordering_key => 'order-42', message_id => %s,
                                  delay => interval '24:00:01')
            """,
            [ID],
        )
    first, *others = rows(conn)
    del first["id"]
    assert len(others) == 3
    for other in others:
        del other["id"]
        assert other == first
    assert first["pending_since"] == first["available_at"]
    assert first["available_at"] - first["created_at"] == FULL.delay


def test_a_message_with_its_names_only_becomes_the_row_that_a_plain_insert_makes(
    conn: psycopg.Connection,
) -> None:
    with conn.transaction():
        pgoutbox.enqueue(conn, GOOD)
        pgoutbox.enqueue_many(conn, [GOOD])
        conn.execute(
            "INSERT INTO outbox (aggregate_type, aggregate_id, event_type, payload) "
            """VALUES ('order', '42', 'OrderPaid', '{"n": 1}')"""
        )
        conn.execute("""SELECT outbox_enqueue('order', '42', 'OrderPaid', '{"n": 1}')""")
    made = rows(conn)
    assert len({row.pop("message_id") for row in made}) == 4
    assert [row.pop("id") for row in made] == [1, 2, 3, 4]
    assert made == [made[0]] * 4


def test_bytes_are_stored_as_they_are(conn: psycopg.Connection) -> None:
    every = bytes(range(256))
    with conn.transaction():
        pgoutbox.enqueue(conn, replace(GOOD, payload=every, content_type="x/y"))
        pgoutbox.enqueue(conn, replace(GOOD, payload=b"", content_type="x/y"))
    assert [(row["body"], row["payload"]) for row in rows(conn)] == [(every, None), (b"", None)]


def test_none_is_a_payload(conn: psycopg.Connection) -> None:
    with conn.transaction():
        pgoutbox.enqueue(conn, replace(GOOD, payload=None))
    assert conn.execute("SELECT payload::text, body FROM outbox").fetchone() == ("null", None)


def test_a_fixed_time_is_kept_to_the_microsecond(conn: psycopg.Connection) -> None:
    at = datetime(2099, 7, 1, 12, 0, 0, 123456, tzinfo=ZoneInfo("America/New_York"))
    with conn.transaction():
        pgoutbox.enqueue(conn, replace(GOOD, available_at=at))
    assert rows(conn)[0]["available_at"] == at


def test_a_delay_of_a_day_has_24_hours_where_clocks_change(conn: psycopg.Connection) -> None:
    days = timedelta(days=200)
    with conn.transaction():
        conn.execute("SET LOCAL timezone = 'Europe/Berlin'")
        pgoutbox.enqueue(conn, replace(GOOD, delay=days))
        found = conn.execute(
            "SELECT extract(epoch FROM available_at - created_at)::bigint FROM outbox"
        ).fetchone()
    assert found == (days.total_seconds(),)


def test_the_right_to_insert_the_named_columns_is_enough(dsn: str) -> None:
    everything = replace(FULL, ordering_key="k", message_id=None, dedup_key="d")
    with (
        login_role(dsn, "outbox_producer") as role,
        psycopg.connect(role.dsn) as producer,
    ):
        ids = [pgoutbox.enqueue(producer, everything), *pgoutbox.enqueue_many(producer, [GOOD])]
        assert pgoutbox.enqueue(producer, everything) == ids[0]
        producer.execute("SELECT outbox_enqueue('order', '42', 'OrderPaid', '1', dedup_key => 'e')")
        producer.commit()
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            producer.execute("SELECT FROM outbox")
        producer.rollback()


def test_an_enqueue_is_one_statement_and_one_round_trip(dsn: str) -> None:
    with psycopg.connect(dsn) as business, tempfile.TemporaryFile("w+") as trace:
        business.execute("SELECT 1")
        business.pgconn.trace(trace.fileno())
        pgoutbox.enqueue(business, FULL)
        pgoutbox.enqueue_many(business, [FULL, GOOD, GOOD])
        business.pgconn.untrace()
        trace.seek(0)
        sent = [line.split("\t") for line in trace if "\tF\t" in line]
    assert [fields[3].strip() for fields in sent].count("Sync") == 2
    assert [fields[3].strip() for fields in sent].count("Execute") == 2
    assert not any(fields[3].strip() == "Query" for fields in sent)


@pytest.mark.parametrize("factory", [psycopg.RawCursor, psycopg.ClientCursor])
def test_the_connections_own_cursor_and_row_factories_do_not_matter(
    dsn: str, factory: type[psycopg.Cursor[Any]]
) -> None:
    with psycopg.connect(dsn, cursor_factory=factory, row_factory=class_row(dict)) as business:
        pgoutbox.enqueue(business, FULL)
        pgoutbox.enqueue_many(business, [GOOD])
        business.commit()
        assert count(business) == 2


def test_an_enqueue_works_inside_a_pipeline(conn: psycopg.Connection) -> None:
    with conn.pipeline(), conn.transaction():
        pgoutbox.enqueue(conn, GOOD)
        pgoutbox.enqueue_many(conn, [GOOD])
    assert count(conn) == 2


def test_autocommit_outside_a_transaction_is_refused(conn: psycopg.Connection) -> None:
    with pytest.raises(NotInTransaction, match=r"with conn\.transaction\(\)"):
        pgoutbox.enqueue(conn, GOOD)
    with pytest.raises(NotInTransaction, match="enqueue_many"):
        pgoutbox.enqueue_many(conn, [])
    assert count(conn) == 0


async def test_autocommit_is_refused_before_anything_is_awaited(
    aconn: psycopg.AsyncConnection,
) -> None:
    with pytest.raises(NotInTransaction):
        _ = pgoutbox.enqueue(aconn, GOOD)
    with pytest.raises(NotInTransaction):
        _ = pgoutbox.enqueue_many(aconn, [GOOD])


def test_autocommit_is_allowed_where_it_is_asked_for(conn: psycopg.Connection) -> None:
    pgoutbox.enqueue(conn, GOOD, allow_autocommit=True)
    pgoutbox.enqueue_many(conn, [GOOD], allow_autocommit=True)
    assert count(conn) == 2


def test_a_transaction_begun_by_hand_counts_as_one(conn: psycopg.Connection) -> None:
    conn.execute("BEGIN")
    pgoutbox.enqueue(conn, GOOD)
    conn.execute("COMMIT")
    assert count(conn) == 1


def test_a_refused_message_leaves_the_transaction_usable(dsn: str) -> None:
    bad = [
        replace(GOOD, payload={"items": [{"price": float("nan")}]}),
        replace(GOOD, payload="\0"),
        replace(GOOD, headers={"a": "\ud800"}),
        replace(GOOD, destination="No Name"),
        replace(GOOD, payload="x" * 1024 * 1024),
    ]
    with psycopg.connect(dsn) as business:
        pgoutbox.enqueue(business, GOOD)
        for message in bad:
            with pytest.raises(InvalidMessage):
                pgoutbox.enqueue(business, message)
        business.commit()
        assert count(business) == 1


def test_the_limit_of_a_payload_can_be_raised(conn: psycopg.Connection) -> None:
    large = replace(GOOD, payload="x" * 1024 * 1024)
    with conn.transaction():
        pgoutbox.enqueue(conn, large, max_payload_bytes=2 * 1024 * 1024)
        pgoutbox.enqueue_many(conn, [large], max_payload_bytes=2 * 1024 * 1024)
        with pytest.raises(ValueError, match="max_payload_bytes"):
            pgoutbox.enqueue(conn, GOOD, max_payload_bytes=1024**3)
    assert count(conn) == 2


@pytest.mark.parametrize("wrong", [None, "dsn", object()])
def test_something_else_than_a_connection_is_a_type_error(wrong: Any) -> None:
    with pytest.raises(TypeError, match="enqueue needs a psycopg Connection or AsyncConnection"):
        pgoutbox.enqueue(wrong, GOOD)
    with pytest.raises(TypeError, match="enqueue_many needs a psycopg Connection"):
        pgoutbox.enqueue_many(wrong, [GOOD])


def test_a_cursor_is_no_connection(conn: psycopg.Connection) -> None:
    cursor: Any = conn.cursor()
    with pytest.raises(TypeError, match=r"not psycopg\.Cursor"):
        pgoutbox.enqueue(cursor, GOOD)
