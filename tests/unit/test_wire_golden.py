"""What each format makes of some messages, to the byte. Write it anew, then read the diff:

PGOUTBOX_TEST_GOLDEN=write python -m pytest tests/unit/test_wire_golden.py
"""

from __future__ import annotations

import json
import os
from base64 import b64encode
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import UUID

import pytest

from pgoutbox.testing import make_message
from pgoutbox.wire.formats import FORMATS

if TYPE_CHECKING:
    from pgoutbox.wire.envelope import Envelope

GOLDEN = Path(__file__).with_name("golden")
WRITE = os.environ.get("PGOUTBOX_TEST_GOLDEN") == "write"

USUAL = {
    "id": 17,
    "attempts": 2,
    "message_id": UUID("0197a1b2-c3d4-7e5f-8a9b-0c1d2e3f4a5b"),
    "aggregate_type": "order",
    "aggregate_id": "order-4711",
    "event_type": "order_placed",
    "created_at": datetime(2025, 6, 24, 12, 30, 45, 678901, UTC),
}
CASES: dict[str, dict[str, object]] = {
    "json_with_long_numbers": {
        "body": b'{"total": 12345678901234567890.10, "tiny": 1e-400, "one": 1.0,\n "n": null}',
    },
    "binary": {"content_type": "application/x-protobuf", "body": bytes(range(256))},
    "not_the_json_it_claims_to_be": {"body": b'{"total": NaN}'},
    "text": {"content_type": "text/plain; charset=utf-8", "body": "grün".encode()},
    "empty": {"content_type": "application/octet-stream", "body": b""},
    "unicode": {
        "aggregate_type": "Bestellung/größer 100%",
        "aggregate_id": '"№ 7" 🛒',
        "event_type": "angelegt\tund\u0085bezahlt\ufdd0",
        "body": '{"Straße": "東京"}'.encode(),
        "headers_json": '{"note": "für 🛒 \\"7\\"", "größe": "XL"}',
    },
    "headers_that_collide": {
        "headers_json": json.dumps(
            {
                "id": "mine",
                "EventType": "mine",
                "ce-type": "mine",
                "CE-Custom": "mine",
                "Outbox-Attempt": "mine",
                "Content-Type": "mine",
                "tenant": "acme",
                "": "nameless",
            }
        ),
    },
    "ordering_key": {"ordering_key": "customer-9"},
    "trace_context": {
        "headers_json": json.dumps(
            {
                "traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
                "tracestate": "rojo=00f067aa0ba902b7,congo=t61rcWkgMzE",
                "tenant": "acme",
            }
        ),
    },
}


def as_json(envelope: Envelope) -> str:
    """For people to read; bytes that are no text are in base64."""
    try:
        body = {"text": envelope.body.decode("utf-8")}
    except UnicodeDecodeError:
        body = {"base64": b64encode(envelope.body).decode()}
    shown = {
        "key": envelope.key,
        "headers": [f"{name}: {value}" for name, value in envelope.headers],
        "content_type": envelope.content_type,
        "body": body,
    }
    return json.dumps(shown, indent=2, ensure_ascii=False) + "\n"


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("name", FORMATS)
def test_a_message_looks_on_the_wire_as_it_always_did(name: str, case: str) -> None:
    golden = GOLDEN / name / f"{case}.json"
    found = as_json(FORMATS[name].encode(make_message(**USUAL | CASES[case])))
    if WRITE:
        golden.parent.mkdir(parents=True, exist_ok=True)
        golden.write_text(found, encoding="utf-8")
    assert golden.read_text(encoding="utf-8") == found


@pytest.mark.skipif(WRITE, reason="they are being written, in any order")
def test_no_golden_file_is_left_over() -> None:
    expected = {f"{name}/{case}.json" for name in FORMATS for case in CASES}
    assert {path.relative_to(GOLDEN).as_posix() for path in GOLDEN.rglob("*.json")} == expected
