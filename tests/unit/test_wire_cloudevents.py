"""Events as the CloudEvents project's own package reads them."""

from __future__ import annotations

import re
import unicodedata
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pytest
from cloudevents.core.bindings import http, kafka
from hypothesis import given, strategies as st

from pgoutbox.testing import make_message
from pgoutbox.wire.cloudevents import encode_binary, encode_structured, header_value

if TYPE_CHECKING:
    from cloudevents.core.base import BaseCloudEvent

    from pgoutbox.message import ClaimedMessage

NOON = datetime(2025, 6, 24, 12, 0, 0, 1, UTC)
ROW = make_message(
    aggregate_type="order/größer",
    aggregate_id='№ 7 "50%" 🛒',
    event_type="com.example.order.placed",
    ordering_key="customer 9",
    created_at=NOON,
    headers_json='{"traceparent": "00-1-2-01", "tracestate": "a=b", "tenant": "acme"}',
)


def over_http(message: ClaimedMessage) -> BaseCloudEvent:
    found = encode_binary(message, prefix="ce-")
    headers = {
        name: header_value(value) if name.startswith("ce-") else value
        for name, value in found.headers
    }
    headers["content-type"] = found.content_type
    return http.from_http_event(http.HTTPMessage(headers, found.body))


def over_kafka(message: ClaimedMessage) -> BaseCloudEvent:
    found = encode_binary(message, prefix="ce_")
    headers = {name: value.encode() for name, value in found.headers}
    headers["content-type"] = found.content_type.encode()
    return kafka.from_kafka_event(kafka.KafkaMessage(headers, found.key.encode(), found.body))


def structured(message: ClaimedMessage) -> BaseCloudEvent:
    found = encode_structured(message)
    headers = dict(found.headers) | {"content-type": found.content_type}
    return http.from_http_event(http.HTTPMessage(headers, found.body))


WAYS = pytest.mark.parametrize("read", [over_http, over_kafka, structured])


@WAYS
def test_the_official_reader_finds_everything_that_the_row_says(read: object) -> None:
    assert callable(read)
    event = read(ROW)
    assert event.get_attributes() == {
        "specversion": "1.0",
        "id": str(ROW.message_id),
        "source": "/order%2Fgr%C3%B6%C3%9Fer",
        "type": "com.example.order.placed",
        "subject": '№ 7 "50%" 🛒',
        "time": NOON,
        "datacontenttype": "application/json",
        "aggregatetype": "order/größer",
        "partitionkey": "customer 9",
        "traceparent": "00-1-2-01",
        "tracestate": "a=b",
    }
    assert event.get_data() == {"total": 42}


@WAYS
def test_the_official_reader_gets_the_bytes_of_a_payload_that_is_no_text(read: object) -> None:
    assert callable(read)
    body = b"\xff\x00" + bytes(range(256))
    event = read(ROW._replace(body=body, content_type="application/x-thing"))
    assert event.get_data() == body
    assert event.get_datacontenttype() == "application/x-thing"


def legal(text: str) -> bool:
    """By the specification's rules for strings."""
    return not any(
        unicodedata.category(one) in {"Cc", "Cs"}
        or ord(one) & 0xFFFE == 0xFFFE  # the last two of each plane
        or "\ufdd0" <= one <= "\ufdef"
        for one in text
    )


TEXT = st.text(min_size=1) | st.text(
    st.sampled_from('a %"\x00\t\x7f\x85\ud800\udfff\ufdd0\ufdef\ufffe\uffff\U0010ffff\U0001f600é'),
    min_size=1,
)


@given(TEXT, TEXT, TEXT, TEXT)
def test_whatever_the_row_holds_every_attribute_is_legal(
    aggregate_type: str, aggregate_id: str, event_type: str, content_type: str
) -> None:
    message = make_message(
        aggregate_type=aggregate_type,
        aggregate_id=aggregate_id,
        event_type=event_type,
        content_type=content_type,
    )
    found = encode_binary(message)
    attributes = dict(found.headers) | {"datacontenttype": found.content_type}
    assert all(value and legal(value) for value in attributes.values())
    assert re.fullmatch(r"/([A-Za-z0-9_.~-]|%[0-9A-F]{2})+", attributes["ce-source"])
    assert all(re.fullmatch(r"[a-z0-9]{1,20}", name.removeprefix("ce-")) for name in attributes)
    assert structured(message).get_type() == attributes["ce-type"]


@given(TEXT.filter(legal))
def test_legal_text_is_not_changed_and_survives_headers_of_ascii(text: str) -> None:
    message = make_message(aggregate_id=text)
    assert over_http(message).get_subject() == text
    assert over_kafka(message).get_subject() == text
    assert re.fullmatch(r"(?:[!#$&-~]|%[0-9A-F]{2})+", header_value(text))
