"""Names, keys, times, sizes and content types of a message, checked without a database."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import TYPE_CHECKING, Any
from uuid import UUID

import pytest
from hypothesis import given, strategies as st

from pgoutbox import InvalidMessage, Message
from pgoutbox.producer.ids import id_of_dedup_key
from pgoutbox.producer.row import Row, aggregate_key, row_of

if TYPE_CHECKING:
    from collections.abc import Mapping

GOOD = Message(aggregate_type="order", aggregate_id="42", event_type="OrderPaid", payload={"n": 1})
ID = UUID("0190b9c0-0000-7000-8000-00000000abcd")
# Short, and of the characters that matter, so that some of them collide if anything can.
AGGREGATE_NAMES = st.text(alphabet="/%25Fa", min_size=1, max_size=4)


class Event(StrEnum):
    PAID = "OrderPaid"


def row(max_payload_bytes: int = 100, /, **fields: Any) -> Row:
    return row_of(replace(GOOD, **fields), max_payload_bytes=max_payload_bytes)


def test_a_message_needs_only_its_names_and_a_payload() -> None:
    made = row()
    assert made.message_id.version == 7
    assert made[1:] == (
        *("default", None, "order", "42", "OrderPaid", "application/json", None),
        *("{}", '{"n":1}', None, None, None),
    )


@pytest.mark.parametrize(
    ("fields", "path", "word"),
    [
        ({"aggregate_type": ""}, "aggregate_type", "empty"),
        ({"aggregate_id": 42}, "aggregate_id", "not int"),
        ({"aggregate_id": None}, "aggregate_id", "not NoneType"),
        ({"event_type": "é" * 257}, "event_type", "514 bytes"),
        ({"event_type": "a\0"}, "event_type", "NUL"),
        ({"ordering_key": ""}, "ordering_key", "empty"),
        ({"ordering_key": "k" * 513}, "ordering_key", "513 bytes"),
        ({"ordering_key": "\ud800"}, "ordering_key", "U+D800"),
        ({"ordered": None}, "ordered", "not NoneType"),
        ({"ordered": "yes"}, "ordered", "not str"),
        ({"ordered": True, "ordering_key": "k"}, "ordered", "not together with ordering_key"),
        ({"ordered": True, "aggregate_id": "i" * 507}, "ordered", "513 bytes"),
        ({"ordered": True, "aggregate_type": "/" * 171}, "ordered", "516 bytes"),
        ({"dedup_key": ""}, "dedup_key", "empty"),
        ({"dedup_key": b"k"}, "dedup_key", "not bytes"),
        ({"destination": "Kafka"}, "destination", "lower-case"),
        ({"destination": "kafka\n"}, "destination", "lower-case"),
        ({"destination": "9lives"}, "destination", "lower-case"),
        ({"destination": "d" * 41}, "destination", "40 characters"),
        ({"destination": ""}, "destination", "empty"),
        ({"content_type": ""}, "content_type", "empty"),
        ({"content_type": "text/plain\r\n"}, "content_type", "printable ASCII"),
        ({"content_type": "text/é"}, "content_type", "printable ASCII"),
        ({"content_type": "a" * 256}, "content_type", "256 bytes"),
        ({"payload": b"\x00\xff"}, "content_type", "not JSON"),
        ({"payload": b""}, "content_type", "not JSON"),
        ({"payload": b"[NaN]"}, "content_type", "not JSON"),
        ({"payload": b"[" * 90 * 1000}, "payload", "90000 bytes"),
        ({"message_id": ID, "dedup_key": "k"}, "message_id", "derived"),
        ({"message_id": str(ID)}, "message_id", "uuid.UUID"),
        ({"available_at": datetime(2026, 1, 2)}, "available_at", "time zone"),  # noqa: DTZ001
        ({"available_at": "2026-01-02"}, "available_at", "datetime"),
        ({"available_at": datetime.now(UTC), "delay": timedelta(1)}, "delay", "available_at"),
        ({"delay": timedelta(microseconds=-1)}, "delay", "negative"),
        ({"delay": timedelta.max}, "delay", "100 years"),
        ({"delay": 5}, "delay", "timedelta"),
    ],
)
def test_what_does_not_fit_is_refused_by_name(
    fields: Mapping[str, object], path: str, word: str
) -> None:
    with pytest.raises(InvalidMessage) as refused:
        row(**fields)
    assert refused.value.path == path
    assert word in refused.value.problem


def test_names_and_keys_may_be_as_long_as_their_columns() -> None:
    made = row(aggregate_id="é" * 256, ordering_key="k" * 512, destination="d" * 40)
    assert (made.aggregate_id, len(made.ordering_key or "")) == ("é" * 256, 512)


def test_an_enum_that_is_a_string_is_a_name() -> None:
    assert type(row(event_type=Event.PAID).event_type) is str
    assert row(event_type=Event.PAID).event_type == "OrderPaid"


def test_something_else_than_a_message_is_refused_by_its_type() -> None:
    with pytest.raises(InvalidMessage, match=r"message: must be a pgoutbox\.Message, not dict"):
        row_of({}, max_payload_bytes=1)


def test_the_payload_is_measured_in_bytes_of_its_json_text() -> None:
    assert row(6, payload="éé").payload == '"éé"'
    with pytest.raises(InvalidMessage, match="has 6 bytes; at most 5") as refused:
        row(5, payload="éé")
    assert refused.value.path == "payload"


def test_bytes_that_are_json_need_no_content_type_and_stay_as_they_are() -> None:
    made = row(payload=b'{ "b": 1, "a": 2 }')
    assert (made.payload, made.body) == (None, b'{ "b": 1, "a": 2 }')
    assert made.content_type == "application/json"


def test_bytes_nested_too_deep_for_a_parser_are_not_json() -> None:
    with pytest.raises(InvalidMessage, match="content_type"):
        row(10**6, payload=b"[" * 100_000 + b"]" * 100_000)


def test_bytes_with_a_content_type_are_not_looked_into() -> None:
    made = row(payload=b"\x00\xff", content_type="application/x-protobuf")
    assert (made.body, made.content_type) == (b"\x00\xff", "application/x-protobuf")


def test_a_dedup_key_decides_the_id() -> None:
    assert row(dedup_key="k").message_id == id_of_dedup_key("k")


def test_a_delay_counts_microseconds() -> None:
    assert row(delay=timedelta(days=1, microseconds=7)).delay == 86_400_000_007
    assert row(delay=timedelta()).delay == 0


@pytest.mark.parametrize(
    ("aggregate_type", "aggregate_id", "key"),
    [
        ("order", "42", "order/42"),
        ("order", "eu/42", "order/eu/42"),
        ("order", "100%", "order/100%"),
        ("order/eu", "42", "order%2Feu/42"),
        ("order%2Feu", "42", "order%252Feu/42"),
        ("order", "i" * 506, "order/" + "i" * 506),
    ],
)
def test_an_ordered_message_is_in_the_lane_of_its_aggregate(
    aggregate_type: str, aggregate_id: str, key: str
) -> None:
    made = row(aggregate_type=aggregate_type, aggregate_id=aggregate_id, ordered=True)
    assert made.ordering_key == key


@given(
    one=st.tuples(AGGREGATE_NAMES, AGGREGATE_NAMES), two=st.tuples(AGGREGATE_NAMES, AGGREGATE_NAMES)
)
def test_two_aggregates_never_share_a_key(one: tuple[str, str], two: tuple[str, str]) -> None:
    assert (aggregate_key(*one) == aggregate_key(*two)) == (one == two)
