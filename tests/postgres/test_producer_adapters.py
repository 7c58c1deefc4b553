"""Whatever stack an application uses, its messages become the same rows on the same terms."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any
from uuid import UUID

import psycopg
import pytest
from opentelemetry import trace

import pgoutbox
from pgoutbox import InvalidMessage, Message, NotInTransaction
from tests.support.producing import STACKS
from tests.support.roles import login_role

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.support.producing import Stack

PLAIN = Message(aggregate_type="order", aggregate_id="42", event_type="OrderPaid", payload={"n": 1})
FULL = Message(
    aggregate_type="Bestellung/ß",
    aggregate_id="42 %s :id $1 {x}",
    event_type="OrderPaid",
    payload={"price": "1.10", "list": [1, None]},
    destination="billing",
    headers={"tenant": "é"},
    content_type="application/vnd.order+json",
    ordering_key="order-42",
)
PAYLOADS: list[object] = [
    {"b": 1, "a": {"": [True, None, -0.5, "\\ \" ' %s :x ::y $1 {} 100%"]}},
    [],
    [[1], {"x": None}],
    "text: ünïcode 🎈 \u2028 \x7f",
    "",
    None,
    True,
    2**200,
    1e300,
    Decimal("0.10000000000000000000000000000000001"),
    datetime(2026, 2, 3, 4, 5, 6, 7, tzinfo=UTC),
    UUID(int=7),
    b"",
    bytes(range(256)) + b"%s :x $1",
]
BAD: list[tuple[str, Message]] = [
    ("payload.a[0]", replace(PLAIN, payload={"a": ["\0"]})),
    ("event_type", replace(PLAIN, event_type="\ud800")),
    ("headers['a']", replace(PLAIN, headers={"a": "\n"})),
    ("destination", replace(PLAIN, destination="No Name")),
    ("payload", replace(PLAIN, payload="x" * 1024 * 1024)),
    ("available_at", replace(PLAIN, available_at=datetime(2026, 1, 1))),  # noqa: DTZ001 - refused
    ("message_id", replace(PLAIN, message_id=UUID(int=1), dedup_key="k")),
]
EVERYTHING = b"""
SELECT message_id, destination, ordering_key, aggregate_type, aggregate_id, event_type,
       content_type, dedup_key, headers::text, payload::text, encode(body, 'hex'), status,
       available_at - created_at, pending_since - created_at
  FROM outbox ORDER BY id
"""


@pytest.fixture(params=STACKS)
def stack(request: pytest.FixtureRequest) -> Stack:
    return STACKS[request.param]


@pytest.fixture
def conn(dsn: str) -> Iterator[psycopg.Connection]:
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute("CREATE TABLE orders (id int PRIMARY KEY)")
        yield connection


def stored(conn: psycopg.Connection[Any]) -> list[tuple[Any, ...]]:
    return conn.execute(EVERYTHING).fetchall()


def counts(conn: psycopg.Connection[Any]) -> tuple[int, int]:
    """Of the business rows, and of the messages."""
    found = conn.execute(
        "SELECT (SELECT count(*) FROM orders), (SELECT count(*) FROM outbox)"
    ).fetchone()
    assert found is not None
    return found[0], found[1]


def with_own_ids(messages: list[Message]) -> list[Message]:
    return [
        message if message.dedup_key else replace(message, message_id=UUID(int=number))
        for number, message in enumerate(messages)
    ]


def test_every_payload_becomes_the_row_that_psycopg_writes_byte_for_byte(
    dsn: str, conn: psycopg.Connection, stack: Stack
) -> None:
    messages = with_own_ids(
        [
            *(replace(PLAIN, payload=payload, content_type="x/y") for payload in PAYLOADS),
            FULL,
            replace(FULL, delay=timedelta(days=1, seconds=1)),
        ]
    )
    with conn.transaction():
        for message in messages:
            pgoutbox.enqueue(conn, message)
        expected = stored(conn)
        conn.execute("TRUNCATE outbox")
    with stack(dsn, autocommit=False) as unit:
        ids = [unit.enqueue(message) for message in messages]
    assert stored(conn) == expected
    assert ids == [message.message_id for message in messages]
    conn.execute("TRUNCATE outbox")
    with stack(dsn, autocommit=False) as unit:
        assert list(unit.enqueue_many(messages)) == ids
    # Those with a lane come last in both.
    assert stored(conn) == expected


def test_with_dedup_keys_too_the_row_is_psycopgs(
    dsn: str, conn: psycopg.Connection, stack: Stack
) -> None:
    messages = with_own_ids(
        [
            replace(FULL, dedup_key="a'%s", delay=timedelta(microseconds=2**40)),
            replace(PLAIN, payload=b"\0\xff", content_type="x/y", dedup_key="b"),
            replace(PLAIN, payload=None),
        ]
    )
    with conn.transaction():
        pgoutbox.enqueue_many(conn, messages)
        expected = stored(conn)
        conn.execute("TRUNCATE outbox")
    with stack(dsn, autocommit=False) as unit:
        unit.enqueue_many(iter(messages))
    assert stored(conn) == expected


def test_a_message_is_committed_together_with_the_business_row(
    dsn: str, conn: psycopg.Connection, stack: Stack
) -> None:
    with stack(dsn, autocommit=False) as unit:
        unit.run("INSERT INTO orders VALUES (42)")
        unit.enqueue(PLAIN)
        assert counts(conn) == (0, 0)
    assert counts(conn) == (1, 1)


def test_a_message_is_gone_with_a_rollback(
    dsn: str, conn: psycopg.Connection, stack: Stack
) -> None:
    with suppress(ZeroDivisionError), stack(dsn, autocommit=False) as unit:
        unit.enqueue(PLAIN)
        unit.enqueue_many([PLAIN, PLAIN])
        unit.run("INSERT INTO orders VALUES (42)")
        raise ZeroDivisionError
    assert counts(conn) == (0, 0)


def test_a_rollback_to_a_savepoint_takes_the_messages_after_it_and_no_others(
    dsn: str, conn: psycopg.Connection, stack: Stack
) -> None:
    with stack(dsn, autocommit=False) as unit:
        unit.enqueue(replace(PLAIN, payload="before"))
        with suppress(ZeroDivisionError), unit.savepoint():
            unit.run("INSERT INTO orders VALUES (1)")
            unit.enqueue(replace(PLAIN, payload="taken back"))
            raise ZeroDivisionError
        with unit.savepoint():
            unit.run("INSERT INTO orders VALUES (2)")
            unit.enqueue(replace(PLAIN, payload="kept"))
    found = conn.execute("SELECT payload FROM outbox ORDER BY id").fetchall()
    assert found == [("before",), ("kept",)]
    assert counts(conn) == (1, 2)


def test_a_transaction_that_has_failed_takes_no_message(
    dsn: str, conn: psycopg.Connection, stack: Stack
) -> None:
    with suppress(Exception), stack(dsn, autocommit=False) as unit:
        unit.run("INSERT INTO orders VALUES (1)")
        with suppress(Exception):
            unit.run("SELECT 1 / 0")
        with pytest.raises(Exception, match=r"(?i)transaction"):
            unit.enqueue(PLAIN)
    assert counts(conn) == (0, 0)


def test_a_repeated_dedup_key_inserts_nothing_and_returns_the_same_id(
    dsn: str, conn: psycopg.Connection, stack: Stack
) -> None:
    keyed = replace(PLAIN, dedup_key="order-42-paid")
    with conn.transaction():
        first = pgoutbox.enqueue(conn, keyed)
    with stack(dsn, autocommit=False) as unit:
        again = unit.enqueue(replace(keyed, payload="another"))
        many = unit.enqueue_many([keyed, PLAIN, keyed])
        unit.run("INSERT INTO orders VALUES (1)")
    assert (again, many[0], many[2]) == (first, first, first)
    assert {row[0] for row in stored(conn)} == {first, many[1]}
    assert counts(conn) == (1, 2)


def test_many_keep_their_order_within_a_lane_and_lanes_come_last_and_sorted(
    dsn: str, conn: psycopg.Connection, stack: Stack
) -> None:
    keys = ["z", "b", None, "a", "B", None, "b", "é"]
    messages = [replace(PLAIN, ordering_key=key, payload=n) for n, key in enumerate(keys)]
    with stack(dsn, autocommit=False) as unit:
        ids = unit.enqueue_many(messages)
        assert list(unit.enqueue_many([])) == []
    found = conn.execute("SELECT payload, message_id FROM outbox ORDER BY id").fetchall()
    assert [payload for payload, _ in found] == [2, 5, 4, 3, 1, 6, 0, 7]
    assert dict(found) == dict(enumerate(ids))


def test_an_aggregate_is_a_lane_where_that_is_asked_for(
    dsn: str, conn: psycopg.Connection, stack: Stack
) -> None:
    with stack(dsn, autocommit=False) as unit:
        unit.enqueue(replace(PLAIN, ordered=True))
    assert [row[2] for row in stored(conn)] == ["order/42"]


def test_a_time_is_kept_to_the_microsecond_and_a_delay_counts_from_the_transaction(
    dsn: str, conn: psycopg.Connection, stack: Stack
) -> None:
    at = datetime(2099, 7, 1, 12, 0, 0, 123456, tzinfo=UTC)
    delay = timedelta(days=200, microseconds=1)
    with stack(dsn, autocommit=False) as unit:
        unit.run("SET LOCAL timezone = 'Europe/Berlin'")
        unit.run("SET LOCAL datestyle = 'SQL, DMY'")
        unit.enqueue(replace(PLAIN, available_at=at))
        unit.enqueue_many([replace(PLAIN, delay=delay), replace(PLAIN, available_at=at)])
    found = conn.execute(
        "SELECT available_at, available_at - created_at FROM outbox ORDER BY id"
    ).fetchall()
    assert [found[0][0], found[1][1], found[2][0]] == [at, delay, at]


def test_the_trace_of_the_caller_goes_with_the_message(
    dsn: str, conn: psycopg.Connection, stack: Stack
) -> None:
    caller = trace.NonRecordingSpan(
        trace.SpanContext(0xABC, 0xDEF, is_remote=False, trace_flags=trace.TraceFlags(1))
    )
    given = {"Traceparent": f"00-{1:032x}-{2:016x}-01"}
    with stack(dsn, autocommit=False) as unit, trace.use_span(caller):
        unit.enqueue(replace(PLAIN, headers={"tenant": "t1"}))
        unit.enqueue_many([replace(PLAIN, headers=given)])
    found = conn.execute("SELECT headers FROM outbox ORDER BY id").fetchall()
    traceparent = f"00-{0xABC:032x}-{0xDEF:016x}-01"
    assert found == [({"tenant": "t1", "traceparent": traceparent},), (given,)]


def test_what_is_refused_is_named_before_anything_is_sent(
    dsn: str, conn: psycopg.Connection, stack: Stack
) -> None:
    with stack(dsn, autocommit=False) as unit:
        unit.run("INSERT INTO orders VALUES (1)")
        for path, message in BAD:
            with pytest.raises(InvalidMessage) as refused:
                unit.enqueue(message)
            assert refused.value.path == path
            with pytest.raises(InvalidMessage) as refused:
                unit.enqueue_many([PLAIN, message])
            assert refused.value.path == f"messages[1].{path}"
        sent = conn.execute(
            "SELECT query FROM pg_stat_activity"
            " WHERE datname = current_database() AND pid <> pg_backend_pid()"
        ).fetchall()
        assert [text for (text,) in sent] == ["INSERT INTO orders VALUES (1)"]
        unit.enqueue(PLAIN)
    assert counts(conn) == (1, 1)


def test_the_limit_of_a_payload_can_be_raised(
    dsn: str, conn: psycopg.Connection, stack: Stack
) -> None:
    large = replace(PLAIN, payload="x" * 1024 * 1024)
    with stack(dsn, autocommit=False) as unit:
        unit.enqueue(large, max_payload_bytes=2 * 1024 * 1024)
        unit.enqueue_many([large], max_payload_bytes=2 * 1024 * 1024)
        with pytest.raises(ValueError, match="max_payload_bytes"):
            unit.enqueue(PLAIN, max_payload_bytes=0)
    assert counts(conn) == (0, 2)


def test_outside_of_a_transaction_a_message_is_refused_with_what_to_do(
    dsn: str, conn: psycopg.Connection, stack: Stack
) -> None:
    with stack(dsn, autocommit=True) as unit:
        unit.run("INSERT INTO orders VALUES (1)")
        with pytest.raises(NotInTransaction, match=r"^enqueue: .*allow_autocommit=True"):
            unit.enqueue(PLAIN)
        with pytest.raises(NotInTransaction, match=r"^enqueue_many: "):
            unit.enqueue_many([PLAIN])
        assert counts(conn) == (1, 0)
        unit.enqueue(PLAIN, allow_autocommit=True)
        unit.enqueue_many([PLAIN], allow_autocommit=True)
        assert counts(conn) == (1, 2)


def test_the_role_of_producers_is_enough(dsn: str, conn: psycopg.Connection, stack: Stack) -> None:
    with (
        login_role(dsn, "outbox_producer", "INSERT ON orders") as role,
        stack(role.dsn, autocommit=False) as unit,
    ):
        unit.run("INSERT INTO orders VALUES (1)")
        unit.enqueue(FULL)
        unit.enqueue_many([FULL, PLAIN])
        keyed = unit.enqueue(replace(FULL, dedup_key="d"))
        assert unit.enqueue_many([replace(FULL, dedup_key="d"), PLAIN])[0] == keyed
    assert counts(conn) == (1, 5)


@pytest.mark.parametrize(
    ("code", "advice"), [("40P01", "retry the whole transaction"), ("53200", "max_locks_per_tran")]
)
def test_the_servers_refusals_that_lanes_bring_come_with_advice(
    dsn: str, conn: psycopg.Connection, stack: Stack, code: str, advice: str
) -> None:
    conn.execute(
        f"""
        CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$
        BEGIN RAISE EXCEPTION 'no' USING ERRCODE = '{code}'; END $$;
        CREATE TRIGGER refuse BEFORE INSERT ON outbox EXECUTE FUNCTION refuse();
        """.encode()
    )
    with suppress(Exception), stack(dsn, autocommit=False) as unit:
        with pytest.raises(Exception, match="no") as refused:
            unit.enqueue(FULL)
        assert any(advice in note for note in refused.value.__notes__)


def test_a_worker_that_sleeps_is_woken_at_the_commit(
    dsn: str, conn: psycopg.Connection, stack: Stack
) -> None:
    conn.execute("UPDATE outbox_wakeup SET wanted = true")
    conn.execute("LISTEN outbox")
    with stack(dsn, autocommit=False) as unit:
        unit.enqueue(FULL)
        unit.enqueue_many([replace(PLAIN, dedup_key="d")])
        conn.execute("NOTIFY outbox, 'not yet'")
    heard = [each.payload for each in conn.notifies(timeout=10, stop_after=3)]
    assert (heard[0], sorted(heard[1:])) == ("not yet", ["billing", "default"])
