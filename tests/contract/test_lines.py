"""What a line of JSON holds."""

from __future__ import annotations

import base64
import json
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import pytest

from pgoutbox.brokers.lines import as_line
from pgoutbox.testing import make_message


def parsed(line: bytes) -> dict[str, Any]:
    assert line.endswith(b"\n")
    assert line.count(b"\n") == 1
    assert b"\r" not in line
    whole: dict[str, Any] = json.loads(line)
    return whole


def test_a_line_holds_all_that_describes_the_message() -> None:
    message = make_message(
        message_id=UUID(int=7),
        destination="audit",
        aggregate_type="order",
        aggregate_id="Zürich\n1",
        event_type="order_placed",
        ordering_key="k",
        attempts=3,
        created_at=datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC),
        headers_json='{"traceparent": "00-1", "x": "y"}',
        body=b'{"a": [1, 2]}',
    )
    assert parsed(as_line(message)) == {
        "message_id": "00000000-0000-0000-0000-000000000007",
        "destination": "audit",
        "aggregate_type": "order",
        "aggregate_id": "Zürich\n1",
        "event_type": "order_placed",
        "ordering_key": "k",
        "created_at": "2026-01-02T03:04:05+00:00",
        "attempt": 3,
        "content_type": "application/json",
        "headers": {"traceparent": "00-1", "x": "y"},
        "payload": {"a": [1, 2]},
    }


def test_numbers_keep_every_digit() -> None:
    body = b'{"n": 12345678901234567890123, "d": 0.1234567890123456789, "k": ' + b"9" * 5000 + b"}"
    assert b'"payload": ' + body + b"}\n" in as_line(make_message(body=body))


def test_line_breaks_between_tokens_become_blanks() -> None:
    body = b'{\r\n  "a": "x\\ny"\n}\n'
    assert parsed(as_line(make_message(body=body)))["payload"] == {"a": "x\ny"}


@pytest.mark.parametrize(
    ("content_type", "body"),
    [
        ("application/json", b""),
        ("application/json", b"{broken"),
        ("application/json", b'{"a": 1} {"b": 2}'),
        ("application/json", b'{"a": NaN}'),
        ("application/json", b'"\xff"'),
        ("application/json", '{"a": 1}'.encode("utf-16")),
        ("application/json", b'\xef\xbb\xbf{"a": 1}'),
        ("application/json", b'"raw \n line feed"'),
        ("application/json", b"[" * 200_000),
        ("text/plain", b"{}"),
        ("application/octet-stream", bytes(range(256))),
    ],
)
def test_what_is_not_json_stands_there_in_base64(content_type: str, body: bytes) -> None:
    line = parsed(as_line(make_message(content_type=content_type, body=body)))
    assert "payload" not in line
    assert base64.b64decode(line["payload_base64"]) == body


@pytest.mark.parametrize(
    "content_type", ["application/json", "Application/JSON; charset=utf-8", "application/ld+json"]
)
def test_every_kind_of_json_stands_there_as_json(content_type: str) -> None:
    line = parsed(as_line(make_message(content_type=content_type, body=b"null")))
    assert line["payload"] is None


def test_text_with_lone_surrogates_can_be_written() -> None:
    assert parsed(as_line(make_message(aggregate_id="\ud800")))["aggregate_id"] == "\ud800"
