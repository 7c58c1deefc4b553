"""What docs/producers-django.md shows is run as it stands there, in the tests' own project."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from django.conf import settings

from tests.docs.fences import ROOT, blocks
from tests.support.django_project import Order, databases, make_tables

if TYPE_CHECKING:
    import psycopg

PAGE = "docs/producers-django.md"


@pytest.fixture
def page() -> dict[str, Any]:
    """The names that the page's blocks define, one after the other."""
    names: dict[str, Any] = {"Order": Order}
    for block in blocks(PAGE, (ROOT / PAGE).read_text(encoding="utf-8")):
        if block.language == "python":
            exec(compile(block.text, PAGE, "exec", dont_inherit=True), names)  # noqa: S102 - our page
    return names


def test_the_documented_view_commits_an_order_with_its_message(
    dsn: str, conn: psycopg.Connection, page: dict[str, Any]
) -> None:
    with databases(default=dsn):
        make_tables("default")
        page["place"](42)
    found = conn.execute(
        "SELECT o.event_type, o.payload, s.total FROM outbox o"
        " JOIN shop_order s ON o.aggregate_id = s.id::text"
    )
    assert found.fetchall() == [("OrderPlaced", {"id": 1, "total": 42}, 42)]


def test_the_documented_app_and_router_are_those_that_there_are(page: dict[str, Any]) -> None:
    assert set(settings.INSTALLED_APPS) < set(page["INSTALLED_APPS"])
    routed = page["Outbox"]().allow_migrate
    assert routed("orders", "pgoutbox") is True
    assert routed("default", "pgoutbox") is False
    assert routed("default", "shop") is None
