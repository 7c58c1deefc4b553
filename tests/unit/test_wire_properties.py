"""Whatever a row holds has an encoding in every format."""

from __future__ import annotations

import json
from base64 import b64decode
from decimal import Decimal

from hypothesis import given, strategies as st

from pgoutbox.message import HEADER_NAME
from pgoutbox.testing import make_message
from pgoutbox.wire.cloudevents import encode_structured
from pgoutbox.wire.formats import FORMATS

# Surrogates included, which no row can hold.
TEXT = st.text(st.characters())
HEADERS = st.dictionaries(
    TEXT | st.sampled_from(["traceparent", "TraceState", "ID", "ce_type"]), TEXT
)
JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.decimals(allow_nan=False, allow_infinity=False)
    | TEXT,
    lambda inner: st.lists(inner) | st.dictionaries(TEXT, inner),
)
SPACE = st.text(" \t\r\n", max_size=3)


def written(value: object) -> str:
    """JSON with every digit of a Decimal."""
    if isinstance(value, Decimal):
        return str(value)
    if isinstance(value, list):
        return f"[{', '.join(map(written, value))}]"
    if isinstance(value, dict):
        pairs = (f"{json.dumps(key)}: {written(one)}" for key, one in value.items())
        return f"{{{', '.join(pairs)}}}"
    return json.dumps(value)


def parsed(text: bytes | str) -> object:
    """No number is rounded, or taken for an equal one that is spelled differently."""
    return json.loads(text, parse_float=lambda digits: ("float", digits))


@given(
    name=st.sampled_from(list(FORMATS)),
    texts=st.fixed_dictionaries(
        dict.fromkeys(("aggregate_type", "aggregate_id", "event_type", "content_type"), TEXT)
    ),
    ordering_key=st.none() | TEXT,
    headers=HEADERS,
    body=st.binary(),
    prefix=st.sampled_from(["ce-", "ce_", "cloudEvents:"]),
)
def test_any_text_in_any_field_is_encoded_without_an_exception(
    name: str,
    texts: dict[str, str],
    ordering_key: str | None,
    headers: dict[str, str],
    body: bytes,
    prefix: str,
) -> None:
    message = make_message(
        **texts, ordering_key=ordering_key, headers_json=json.dumps(headers), body=body
    )
    found = FORMATS[name].encode(message, prefix=prefix)
    named = [one.removeprefix(prefix) for one, _ in found.headers]
    assert all(HEADER_NAME.fullmatch(one) for one in named)
    assert isinstance(found.body, bytes)


@given(value=JSON, before=SPACE, after=SPACE, headers=HEADERS)
def test_the_data_of_a_structured_event_is_the_payload_to_the_last_digit(
    value: object, before: str, after: str, headers: dict[str, str]
) -> None:
    text = before + written(value) + after
    message = make_message(body=text.encode(), headers_json=json.dumps(headers))
    event = parsed(encode_structured(message).body.decode("utf-8"))
    assert isinstance(event, dict)
    assert event["data"] == parsed(text)


@given(body=st.binary(), content_type=TEXT | st.just("application/json"), aggregate_id=TEXT)
def test_the_payload_of_a_structured_event_is_found_whatever_it_is(
    body: bytes, content_type: str, aggregate_id: str
) -> None:
    message = make_message(body=body, content_type=content_type, aggregate_id=aggregate_id)
    event = json.loads(encode_structured(message).body.decode("utf-8"))
    if "data" in event:
        assert event["data"] == json.loads(body)
        assert "data_base64" not in event
    else:
        assert b64decode(event["data_base64"], validate=True) == body
