"""The consumers of docs/consumers.md do what the page says about them."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any
from uuid import UUID

import pytest
from standardwebhooks import Webhook, WebhookVerificationError

from tests.docs.fences import ROOT, blocks

if TYPE_CHECKING:
    import psycopg

PAGE = "docs/consumers.md"
SECRET = "whsec_" + "c2VjcmV0" * 4
IDS = [str(UUID(int=number)) for number in range(1, 4)]


@pytest.fixture
def page() -> dict[str, Any]:
    """The names that the page's blocks define."""
    names: dict[str, Any] = {}
    for block in blocks(PAGE, (ROOT / PAGE).read_text(encoding="utf-8")):
        if block.language == "python":
            exec(compile(block.text, PAGE, "exec", dont_inherit=True), names)  # noqa: S102 - our page
    return names


def test_a_repeat_has_no_second_effect(conn: psycopg.Connection, page: dict[str, Any]) -> None:
    conn.execute("CREATE TABLE shipments (order_id int)")
    for _ in range(2):
        page["on_order_placed"](conn, IDS[0], {"id": 42})
    assert conn.execute("SELECT order_id FROM shipments").fetchall() == [(42,)]


def test_what_arrives_late_does_not_replace_what_is_newer(
    conn: psycopg.Connection, page: dict[str, Any]
) -> None:
    conn.execute("CREATE TABLE customers (id int PRIMARY KEY, name text, version int)")
    for number, (version, name) in enumerate([(1, "Ada"), (3, "Ada L."), (2, "Ada B.")]):
        customer = {"id": 42, "name": name, "version": version}
        page["on_customer"](conn, IDS[number], customer)
    assert conn.execute("SELECT name, version FROM customers").fetchall() == [("Ada L.", 3)]


def test_old_versions_of_an_event_are_translated_and_unknown_ones_refused(
    page: dict[str, Any],
) -> None:
    read = page["read_order"]
    assert read({"id": 1, "total": 42}) == read({"id": 1, "version": 2, "total_cents": 4200})
    with pytest.raises(ValueError, match="version 3"):
        read({"id": 1, "version": 3})


def test_a_genuine_request_is_told_from_a_forged_one(page: dict[str, Any]) -> None:

    now = datetime.now(UTC)
    body = '{"id": 1}'
    signed = {
        "webhook-id": IDS[0],
        "webhook-timestamp": str(int(now.timestamp())),
        "webhook-signature": Webhook(SECRET).sign(IDS[0], now, body),
    }
    assert page["genuine"](SECRET, signed, body.encode()) == {"id": 1}
    with pytest.raises(WebhookVerificationError):
        page["genuine"](SECRET, signed, b'{"id": 2}')
