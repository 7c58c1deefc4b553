"""Messages for tests: one like any other, and the odd ones that a row may hold."""

from __future__ import annotations

import uuid
from datetime import UTC, datetime
from typing import Any

from pgoutbox.message import ClaimedMessage

PAYLOADS = {
    "json": b'{"n": 12345678901234567890123, "d": 0.1234567890123456789}',
    "empty": b"",
    "null": b"null",
    "binary": bytes(range(256)),
    "one mebibyte": b"x" * 2**20,
}
TEXTS = {
    "plain": "order-1",
    "unicode": "Zürich/中文/🙂",
    "control characters": "a\r\nInjected: 1\x00b\x7f",
    "blanks": "  two words  ",
    "percent": "100%25",
    "long": "k" * 512,
}


def make_message(**fields: Any) -> ClaimedMessage:  # noqa: ANN401 - any field of the message
    """A claimed message like any other, except for the fields given."""
    whole: dict[str, Any] = {
        "id": 1,
        "lease_version": 1,
        "attempts": 1,
        "reclaims": 0,
        "message_id": uuid.uuid4(),
        "destination": "default",
        "ordering_key": None,
        "aggregate_type": "order",
        "aggregate_id": "order-1",
        "event_type": "order_placed",
        "content_type": "application/json",
        "body": b'{"total": 42}',
        "headers_json": "{}",
        "created_at": datetime.now(UTC),
        "age": 0.0,
    }
    return ClaimedMessage(**(whole | fields))
