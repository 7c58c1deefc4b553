"""What consumers may rely on in each wire format."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta, timezone
from functools import partial

import pytest

from pgoutbox.message import HEADER_NAME
from pgoutbox.testing import make_message
from pgoutbox.wire.cloudevents import encode_binary, encode_structured
from pgoutbox.wire.debezium import encode_debezium
from pgoutbox.wire.formats import FORMATS
from pgoutbox.wire.plain import encode_plain


def names(headers: object) -> list[str]:
    assert isinstance(headers, list)
    return [name.lower() for name, _ in headers]


def test_the_formats_are_found_by_the_names_that_the_settings_use() -> None:
    assert list(FORMATS) == ["plain", "debezium", "cloudevents_binary", "cloudevents_structured"]
    assert all(FORMATS[name].name == name for name in FORMATS)


@pytest.mark.parametrize("name", FORMATS)
def test_the_content_type_is_never_among_the_headers(name: str) -> None:
    message = make_message(headers_json='{"Content-Type": "text/html", "a": "b"}')
    headers = FORMATS[name].encode(message).headers
    assert "content-type" not in names(headers)
    assert ("a", "b") in headers


@pytest.mark.parametrize("name", FORMATS)
def test_a_header_name_that_no_broker_could_carry_is_percent_encoded(name: str) -> None:
    message = make_message(headers_json='{"größe: 50%": "XL", "": "nameless", "x!~": "odd"}')
    headers = FORMATS[name].encode(message).headers
    assert ("gr%C3%B6%C3%9Fe%3A%2050%25", "XL") in headers
    assert ("x!~", "odd") in headers
    assert "nameless" not in [value for _, value in headers]
    assert all(HEADER_NAME.fullmatch(found) for found, _ in headers)


@pytest.mark.parametrize("name", FORMATS)
def test_no_header_of_the_producer_passes_for_one_of_the_format(name: str) -> None:
    """Whatever the format says about a message, in any spelling."""
    ours = FORMATS[name].encode(make_message(ordering_key="k"), prefix="Ce_").headers
    forged = {found.swapcase(): "forged" for found, _ in ours} | {"tenant": "acme"}
    message = make_message(ordering_key="k", headers_json=json.dumps(forged))
    headers = FORMATS[name].encode(message, prefix="Ce_").headers
    assert "forged" not in [value for _, value in headers]
    assert ("tenant", "acme") in headers


@pytest.mark.parametrize("encode", [encode_plain, encode_debezium, encode_binary])
def test_the_payload_is_the_body(encode: object) -> None:
    assert callable(encode)
    for body in (b"", b"\x00\xff", b'{ "a" : 1.0 }'):
        message = make_message(body=body, content_type="application/x-thing")
        assert encode(message)[2:4] == ("application/x-thing", body)


def test_debezium_keys_by_the_aggregate_even_in_a_lane() -> None:
    message = make_message(aggregate_id="o-1", ordering_key="customer-9")
    assert encode_debezium(message).key == "o-1"


def test_debezium_says_the_message_id_and_the_event_type_before_all_else() -> None:
    message = make_message(event_type="order_placed", headers_json='{"tenant": "acme"}')
    assert list(encode_debezium(message).headers) == [
        ("id", str(message.message_id)),
        ("eventType", "order_placed"),
        ("tenant", "acme"),
    ]


@pytest.mark.parametrize("encode", [encode_plain, encode_binary, encode_structured])
def test_other_formats_key_by_the_lane_and_else_by_the_aggregate(encode: object) -> None:
    assert callable(encode)
    assert encode(make_message(aggregate_id="o-1", ordering_key="customer-9")).key == "customer-9"
    assert encode(make_message(aggregate_id="o-1")).key == "o-1"


def test_attributes_have_the_prefix_of_the_protocol() -> None:
    for prefix in ("ce-", "ce_", "cloudEvents:"):
        headers = dict(encode_binary(make_message(), prefix=prefix).headers)
        assert headers[f"{prefix}specversion"] == "1.0"
        assert all(name.startswith(prefix) for name in headers)


def test_a_structured_event_has_no_header_that_looks_like_a_binary_one() -> None:
    message = make_message(headers_json='{"ce-id": "x", "CE-Type": "x", "tenant": "acme"}')
    assert list(encode_structured(message).headers) == [("tenant", "acme")]


def test_the_source_may_begin_with_what_the_organisation_is_called() -> None:
    encode = partial(encode_binary, source="https://example.com/shop/")
    headers = dict(encode(make_message(aggregate_type="order item")).headers)
    assert headers["ce-source"] == "https://example.com/shop/order%20item"


def test_the_time_is_told_in_utc_whatever_zone_the_session_has() -> None:
    moment = datetime(2025, 1, 1, 1, 30, tzinfo=timezone(timedelta(hours=5, minutes=30)))
    headers = dict(encode_binary(make_message(created_at=moment)).headers)
    assert headers["ce-time"] == "2024-12-31T20:00:00Z"
    early = datetime(1, 1, 3, tzinfo=UTC)
    assert dict(encode_binary(make_message(created_at=early)).headers)["ce-time"].startswith("0001")


def test_trace_context_becomes_attributes_and_stays_in_the_headers() -> None:
    message = make_message(headers_json='{"TraceParent": "00-1-2-01", "tracestate": "a=b"}')
    headers = encode_binary(message).headers
    for wanted in ("ce-traceparent", "TraceParent", "ce-tracestate", "tracestate"):
        assert wanted in dict(headers)
    event = json.loads(encode_structured(message).body)
    assert (event["traceparent"], event["tracestate"]) == ("00-1-2-01", "a=b")


def test_a_trace_state_without_a_parent_is_no_attribute() -> None:
    for given in ('{"tracestate": "a=b"}', '{"tracestate": "a=b", "traceparent": ""}'):
        headers = dict(encode_binary(make_message(headers_json=given)).headers)
        assert not {"ce-traceparent", "ce-tracestate"} & headers.keys()


@pytest.mark.parametrize(
    "content_type",
    ["application/json", "text/json", "Application/Geo+JSON ; charset=utf-8"],
)
def test_a_json_payload_is_carried_with_every_digit(content_type: str) -> None:
    text = b'{"total": 0.10000000000000000000001, "id": 12345678901234567890123}'
    message = make_message(body=text, content_type=content_type)
    body = encode_structured(message).body
    assert b'"data": ' + text in body
    assert "data_base64" not in json.loads(body)


@pytest.mark.parametrize(
    ("content_type", "body"),
    [
        ("application/json", b'{"total": NaN}'),
        ("application/json", b'{"a": 1}, "data_base64": "x"'),
        ("application/json", b""),
        ("application/json", "{}".encode("utf-16")),
        ("application/json", b"[" * 100_000 + b"]" * 100_000),
        ("text/plain", b"{}"),
        ("json", b"{}"),
    ],
)
def test_what_is_not_json_is_carried_in_base64(content_type: str, body: bytes) -> None:
    event = json.loads(encode_structured(make_message(body=body, content_type=content_type)).body)
    assert "data" not in event
    assert event["datacontenttype"] == content_type
