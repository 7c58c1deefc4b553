"""Headers of a webhook, without a network."""

from __future__ import annotations

import json
import math
import uuid
from datetime import UTC, datetime
from urllib.parse import unquote

import pytest
from hypothesis import given, strategies as st

from pgoutbox.brokers.http.headers import FRAMING, request_headers, retry_after
from pgoutbox.testing import make_message
from pgoutbox.wire.cloudevents import CLOUDEVENTS_BINARY, CLOUDEVENTS_STRUCTURED

NOW = datetime(2026, 10, 21, 7, 28, 0, tzinfo=UTC)


def sent(headers: dict[str, str], *, reserved: tuple[str, ...] = ()) -> dict[str, str]:
    """The user's part of what is sent."""
    plain = dict(request_headers(make_message())[0])
    message = make_message(headers_json=json.dumps(headers))
    whole, _ = request_headers(message, reserved=frozenset(reserved))
    return {name: value for name, value in whole if name not in plain}


def test_a_message_describes_itself_in_headers() -> None:
    identity = uuid.uuid4()
    message = make_message(
        message_id=identity,
        aggregate_type="order",
        aggregate_id="42",
        event_type="order_placed",
        ordering_key="order 42",
        attempts=3,
        content_type="application/json",
    )
    assert dict(request_headers(message)[0]) == {
        "content-type": "application/json",
        "webhook-id": str(identity),
        "outbox-message-id": str(identity),
        "outbox-aggregate-type": "order",
        "outbox-aggregate-id": "42",
        "outbox-event-type": "order_placed",
        "outbox-ordering-key": "order 42",
        "outbox-attempt": "3",
    }


def test_a_message_without_an_ordering_key_has_no_header_for_it() -> None:
    assert "outbox-ordering-key" not in dict(request_headers(make_message())[0])


def test_the_trace_context_and_the_users_headers_travel_unchanged() -> None:
    headers = {
        "traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
        "tracestate": "a=1,b=2",
        "X-Tenant": "100% of us",
        "Content-Encoding": "gzip",
        "Authorization": "Bearer 1",
        "empty": "",
    }
    assert sent(headers) == headers


@pytest.mark.parametrize(
    "name", ["Webhook_Id", "outbox_attempt", "ce_id", "content_length", "Content_Type"]
)
def test_a_header_that_receivers_would_take_for_ours_is_left_out(name: str) -> None:
    message = make_message(headers_json=json.dumps({name: "forged", "tenant_id": "7"}))
    headers, _ = request_headers(message)
    assert "forged" not in dict(headers).values()
    assert dict(headers)["tenant_id"] == "7"


@pytest.mark.parametrize("name", sorted(FRAMING))
def test_nobody_frames_the_request_from_inside_a_message(name: str) -> None:
    assert sent({name: "1", name.upper(): "2", name.title(): "3"}) == {}


@pytest.mark.parametrize(
    "name",
    [
        "Webhook-Id",
        "WEBHOOK-SIGNATURE",
        "webhook-timestamp",
        "outbox-aggregate-id",
        "Outbox-Ordering-Key",
        "outbox-anything",
        "Content-Type",
        "User-Agent",
        "Accept-Encoding",
    ],
)
def test_nobody_overrides_what_we_say_from_inside_a_message(name: str) -> None:
    message = make_message(headers_json=json.dumps({name: "forged"}))
    headers, _ = request_headers(message)
    assert (headers, message.body) == request_headers(message._replace(headers_json="{}"))
    assert "forged" not in dict(headers).values()


def test_a_reserved_header_is_dropped_in_any_case_of_its_letters() -> None:
    assert sent({"AUTHORIZATION": "Bearer 1", "x": "2"}, reserved=("authorization",)) == {"x": "2"}


@pytest.mark.parametrize(
    ("value", "encoded"),
    [
        ("Zürich", "Z%C3%BCrich"),
        ("a\r\nX-Evil: 1", "a%0D%0AX-Evil: 1"),
        ("a\x00\x7f\tb", "a%00%7F%09b"),
        (" lead and trail  ", "%20lead and trail%20%20"),
        ("  ", "%20%20"),
        ("50% of Zürich", "50%25 of Z%C3%BCrich"),
    ],
)
def test_a_value_that_cannot_stand_in_a_header_is_percent_encoded(value: str, encoded: str) -> None:
    assert sent({"note": value}) == {"note": encoded}


@given(st.text(alphabet=st.characters(exclude_categories=["Cs"])))
def test_what_we_say_about_a_message_can_always_be_percent_decoded(text: str) -> None:
    headers = dict(request_headers(make_message(aggregate_id=text, ordering_key=text))[0])
    for name in ("outbox-aggregate-id", "outbox-ordering-key"):
        assert unquote(headers[name]) == text
        assert headers[name].isascii()
        assert headers[name].isprintable()
        assert headers[name].strip() == headers[name]


@pytest.mark.parametrize(
    ("name", "encoded"),
    [
        ("two words", "two%20words"),
        ("Zürich", "Z%C3%BCrich"),
        ("a:b", "a%3Ab"),
        ("a\r\nb", "a%0D%0Ab"),
        ("a\x00", "a%00"),
    ],
)
def test_a_name_that_no_header_can_have_is_percent_encoded(name: str, encoded: str) -> None:
    assert sent({name: "1"}) == {encoded: "1"}


def test_a_header_without_a_name_is_left_out() -> None:
    assert sent({"": "1"}) == {}


def test_a_binary_cloud_event_has_its_attributes_in_headers_as_its_http_binding_spells_them() -> (
    None
):
    message = make_message(
        aggregate_id='50% of "Zürich"',
        content_type="application/json; charset=utf-8",
        headers_json='{"ce-id": "forged", "CE-source": "forged", "outbox-x": "1", "note": "a b"}',
    )
    headers, body = request_headers(message, CLOUDEVENTS_BINARY)
    values = dict(headers)
    assert len(values) == len(headers)
    assert body == message.body
    assert values["content-type"] == "application/json; charset=utf-8"
    assert values["webhook-id"] == values["ce-id"] == str(message.message_id)
    assert (values["ce-specversion"], values["ce-type"]) == ("1.0", "order_placed")
    assert values["ce-subject"] == "50%25%20of%20%22Z%C3%BCrich%22"
    assert values["note"] == "a b"
    assert not any(name.startswith("outbox-") for name in values)
    assert "forged" not in values.values()


def test_a_structured_cloud_event_is_one_json_object() -> None:
    message = make_message(
        headers_json='{"ce-id": "forged", "outbox-x": "1", "note": "a b", "host": "h"}'
    )
    headers, body = request_headers(message, CLOUDEVENTS_STRUCTURED)
    assert dict(headers) == {
        "content-type": "application/cloudevents+json; charset=utf-8",
        "webhook-id": str(message.message_id),
        "note": "a b",
    }
    event = json.loads(body)
    assert (event["id"], event["data"]) == (str(message.message_id), {"total": 42})


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("7", 7.0),
        (" 7 ", 7.0),
        ("0", 0.0),
        ("86401", 86_401.0),
        ("9" * 5000, 1e300),
        ("Wed, 21 Oct 2026 07:28:30 GMT", 30.0),
        ("Wednesday, 21-Oct-26 07:28:30 GMT", 30.0),
        ("Wed, 21 Oct 2026 07:28:00 GMT", 0.0),
        ("Thu, 22 Oct 2026 07:28:10 GMT", 86_410.0),
        ("Wed, 21 Oct 2026 07:27:00 GMT", None),
        ("Wed, 21 Oct 2026 07:28:30", None),
        ("Wed, 99 Oct 2026 07:28:30 GMT", None),
        ("-5", None),
        ("1e9", None),
        ("1.5", None),
        ("abc", None),
        ("\u0667", None),
        ("", None),
    ],
)
def test_retry_after_is_read_in_both_its_forms_and_else_ignored(
    text: str, seconds: float | None
) -> None:
    assert retry_after({"Retry-After": text}, now=NOW) == seconds


def test_a_date_to_retry_after_counts_from_the_answers_own_date() -> None:
    answer = {
        "Date": "Wed, 21 Oct 2015 07:28:00 GMT",
        "Retry-After": "Wed, 21 Oct 2015 07:30:00 GMT",
    }
    assert retry_after(answer, now=NOW) == 120.0


@pytest.mark.parametrize("date", ["", "now", "Wed, 21 Oct 2026 07:00:00"])
def test_a_date_that_is_no_date_is_replaced_by_our_clock(date: str) -> None:
    answer = {"Date": date, "Retry-After": "Wed, 21 Oct 2026 07:28:10 GMT"}
    assert retry_after(answer, now=NOW) == 10.0


@given(st.text())
def test_no_retry_after_makes_the_answer_unreadable(text: str) -> None:
    seconds = retry_after({"Retry-After": text, "Date": text}, now=NOW)
    assert seconds is None or 0 <= seconds < math.inf
