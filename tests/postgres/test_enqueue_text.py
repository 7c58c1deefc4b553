"""What was enqueued is what the table holds: text and numbers survive their way into jsonb."""

from __future__ import annotations

import json
import math
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import psycopg
import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

import pgoutbox
from pgoutbox import InvalidMessage, Message

if TYPE_CHECKING:
    from uuid import UUID

GOOD = Message(aggregate_type="order", aggregate_id="42", event_type="OrderPaid", payload=1)
STORABLE = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=20)


def payload_text(conn: psycopg.Connection[Any], message_id: UUID) -> str:
    found = conn.execute(
        "SELECT payload::text FROM outbox WHERE message_id = %s", [message_id]
    ).fetchone()
    assert found is not None
    text: str = found[0]
    return text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (12345678901234567890123, "12345678901234567890123"),
        (18446744073709551616, "18446744073709551616"),
        (10**4299, "1" + "0" * 4299),
        ("\\u0000 is no NUL, nor is \\ud800 a surrogate", None),
        ("\x01\x1f\x7f\x85\u2028\U0010ffff", None),
    ],
)
def test_numbers_and_text_arrive_unchanged(
    conn: psycopg.Connection, value: object, text: str | None
) -> None:
    with conn.transaction():
        single = pgoutbox.enqueue(conn, replace(GOOD, payload=value))
        (many,) = pgoutbox.enqueue_many(conn, [replace(GOOD, payload=value)])
    for message_id in (single, many):
        stored = payload_text(conn, message_id)
        assert json.loads(stored) == value
        assert text is None or stored == text


@pytest.mark.parametrize("value", [1e308, -1.7976931348623157e308, 5e-324, 0.1, 1e23])
def test_every_finite_float_comes_back_as_itself(conn: psycopg.Connection, value: float) -> None:
    with conn.transaction():
        message_id = pgoutbox.enqueue(conn, replace(GOOD, payload=value))
    assert float(payload_text(conn, message_id)) == value


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | STORABLE,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(STORABLE, inner, max_size=3),
    max_leaves=10,
)


@settings(
    suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=60
)
@given(payload=JSON, key=STORABLE.filter(bool), value=STORABLE)
def test_whatever_passes_the_checks_is_stored_by_postgresql(
    conn: psycopg.Connection, payload: object, key: str, value: str
) -> None:
    message = replace(
        GOOD,
        payload=payload,
        aggregate_id=key,
        ordering_key=key,
        headers={"value": "".join(c for c in value if c.isprintable())},
    )
    with conn.transaction():
        single = pgoutbox.enqueue(conn, message)
        (many,) = pgoutbox.enqueue_many(conn, [message])
    for message_id in (single, many):
        assert _same(json.loads(payload_text(conn, message_id)), payload)


def _same(stored: object, given: object) -> bool:
    """Equal, where jsonb may write a float without its fraction."""
    if isinstance(given, dict) and isinstance(stored, dict):
        return stored.keys() == given.keys() and all(_same(stored[k], given[k]) for k in given)
    if isinstance(given, list) and isinstance(stored, list):
        return len(stored) == len(given) and all(map(_same, stored, given))
    if isinstance(given, float) and isinstance(stored, (int, float)):
        return math.isclose(float(stored), given, rel_tol=0, abs_tol=0)
    return stored == given


@settings(
    suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=60
)
@given(st.text(st.characters(categories=["Cs", "Cc", "L"]), max_size=6))
def test_text_either_passes_or_is_refused_before_the_transaction_breaks(
    conn: psycopg.Connection, text: str
) -> None:
    with conn.transaction():
        with suppress(InvalidMessage):
            pgoutbox.enqueue(
                conn, replace(GOOD, payload={text: text}, headers={"h": text}, dedup_key=text)
            )
        assert conn.info.transaction_status == psycopg.pq.TransactionStatus.INTRANS
