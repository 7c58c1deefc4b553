"""Messages in the lane of their aggregate: the same lane from every language."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

import pgoutbox
from pgoutbox import Message

if TYPE_CHECKING:
    from uuid import UUID

GOOD = Message(
    aggregate_type="order", aggregate_id="42", event_type="OrderPaid", payload=1, ordered=True
)


def keys(conn: psycopg.Connection[Any]) -> list[str | None]:
    found = conn.execute("SELECT ordering_key FROM outbox ORDER BY id")
    return [key for (key,) in found]


@pytest.mark.parametrize(
    ("aggregate_type", "aggregate_id", "key"),
    [
        ("order", "42", "order/42"),
        ("order/eu", "4/2", "order%2Feu/4/2"),
        ("100%", "%2F", "100%25/%2F"),
        ("Bestellung\\ü", "é", "Bestellung\\ü/é"),
    ],
)
def test_every_path_into_the_outbox_leads_to_the_same_lane(
    conn: psycopg.Connection, aggregate_type: str, aggregate_id: str, key: str
) -> None:
    message = replace(GOOD, aggregate_type=aggregate_type, aggregate_id=aggregate_id)
    with conn.transaction():
        pgoutbox.enqueue(conn, message)
        pgoutbox.enqueue_many(conn, [message, message])
        pgoutbox.enqueue(conn, replace(message, dedup_key="d"))
        conn.execute(
            "SELECT outbox_enqueue(%s, %s, 'OrderPaid', '1', ordered => true)",
            [aggregate_type, aggregate_id],
        )
        conn.execute(
            "SELECT outbox_enqueue(%s, %s, 'OrderPaid', '1', ordered => true, dedup_key => 'e')",
            [aggregate_type, aggregate_id],
        )
    assert keys(conn) == [key] * 6


def test_the_function_orders_nothing_unless_it_is_told_to(conn: psycopg.Connection) -> None:
    conn.execute("SELECT outbox_enqueue('order', '42', 'OrderPaid', '1')")
    conn.execute("SELECT outbox_enqueue('order', '42', 'OrderPaid', '1', ordered => false)")
    conn.execute("SELECT outbox_enqueue('order', '42', 'OrderPaid', '1', ordered => NULL)")
    conn.execute("SELECT outbox_enqueue('order', '42', 'OrderPaid', '1', ordering_key => 'k')")
    assert keys(conn) == [None, None, None, "k"]


def test_a_key_that_does_not_fit_is_refused_by_the_table(conn: psycopg.Connection) -> None:
    with pytest.raises(psycopg.errors.CheckViolation, match="outbox_ordering_key_fit"):
        conn.execute(
            "SELECT outbox_enqueue('order', repeat('i', 507), 'OrderPaid', '1', ordered => true)"
        )
    conn.execute(
        "SELECT outbox_enqueue('order', repeat('i', 506), 'OrderPaid', '1', ordered => true)"
    )
    assert [len(key or "") for key in keys(conn)] == [512]


def test_messages_of_one_aggregate_are_numbered_in_the_order_of_their_commits(
    conn: psycopg.Connection, dsn: str
) -> None:
    sent: list[UUID] = []
    for number in range(3):
        with psycopg.connect(dsn) as business:
            sent.append(pgoutbox.enqueue(business, replace(GOOD, payload=number)))
    stored = conn.execute("SELECT message_id FROM outbox ORDER BY id").fetchall()
    assert [message_id for (message_id,) in stored] == sent


def test_there_is_one_function_to_enqueue_with(conn: psycopg.Connection) -> None:
    found = conn.execute("SELECT count(*) FROM pg_proc WHERE proname = 'outbox_enqueue'")
    assert found.fetchone() == (1,)
