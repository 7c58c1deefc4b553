"""What the pages for producers and consumers show is run as it stands there."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import UUID

import pytest

if TYPE_CHECKING:
    import psycopg


DOCS = Path(__file__).parents[2] / "docs"
QUICK_START_DSN = "postgresql://app@localhost/shop"


def blocks(page: str, language: str) -> list[str]:
    text = (DOCS / page).read_text(encoding="utf-8")
    found = re.findall(rf"^```{language}\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)
    assert found
    return found


def python_of(page: str) -> dict[str, Any]:
    names: dict[str, Any] = {}
    for block in blocks(page, "python"):
        exec(compile(block, page, "exec"), names)  # noqa: S102 - our own page
    return names


@pytest.fixture
def business(conn: psycopg.Connection) -> psycopg.Connection:
    conn.execute("CREATE TABLE orders (id int, paid bool DEFAULT false)")
    conn.execute("CREATE TABLE shipments (order_id int)")
    conn.execute("INSERT INTO orders VALUES (42)")
    return conn


def test_the_quick_start_of_the_readme_runs_on_an_empty_database_and_once_more(
    dsn: str, conn: psycopg.Connection
) -> None:
    (block,) = blocks("../README.md", "python")
    assert QUICK_START_DSN in block
    for _ in range(2):
        exec(compile(block.replace(QUICK_START_DSN, dsn), "README.md", "exec"), {})  # noqa: S102 - our own page
    found = conn.execute(
        "SELECT o.aggregate_id, s.total FROM outbox o JOIN orders s"
        " ON o.payload->'id' = to_jsonb(s.id) ORDER BY o.id"
    )
    assert found.fetchall() == [("1", 42), ("2", 42)]


def test_the_producers_example_enqueues_one_message(business: psycopg.Connection) -> None:
    pay = python_of("producers.md")["pay"]
    pay(business, 42)
    pay(business, 42)
    found = business.execute("SELECT event_type, payload FROM outbox").fetchall()
    assert found == [("OrderPaid", {"order": 42})]


def test_the_example_of_the_page_about_order_enqueues_into_the_lane_it_names(
    business: psycopg.Connection,
) -> None:
    business.execute("CREATE TABLE customers (id int, name text)")
    rename = python_of("ordering.md")["rename"]
    rename(business, 42, "Ada")
    rename(business, 42, "Ada L.")
    found = business.execute("SELECT ordering_key, payload FROM outbox ORDER BY id").fetchall()
    key = business.execute("SELECT outbox_aggregate_key('customer', '42')").fetchone()
    assert key == ("customer/42",)
    assert found == [("customer/42", {"name": "Ada"}), ("customer/42", {"name": "Ada L."})]


def test_the_statements_for_other_languages_run(business: psycopg.Connection) -> None:
    for statement in blocks("producers.md", "sql"):
        business.execute(statement.encode())
    found = business.execute("SELECT destination FROM outbox ORDER BY id").fetchall()
    assert found == [("default",), ("billing",)]


@pytest.mark.parametrize("language", ["go", "java", "js"])
def test_the_calls_from_other_languages_make_a_row(
    business: psycopg.Connection, language: str
) -> None:
    (block,) = blocks("producers.md", language)
    (call,) = re.findall(r"SELECT outbox_enqueue\([^`\"]*\)", block)
    statement = re.sub(r"\$\d|\?", "%s", call)
    business.execute(statement.encode(), ["42", '{"order": 42}'])
    found = business.execute("SELECT aggregate_id, payload FROM outbox").fetchall()
    assert found == [("42", {"order": 42})]


def test_the_role_of_the_page_may_do_what_the_page_does(business: psycopg.Connection) -> None:
    grant, columns = (each for each in blocks("producers.md", "text") if each.startswith("GRANT"))
    assert set(re.findall(r"\w+", columns.split("(")[1].split(")")[0])) == {
        name
        for (name,) in business.execute(
            "SELECT column_name FROM information_schema.column_privileges"
            " WHERE grantee = 'outbox_producer' AND table_name = 'outbox'"
        )
    }
    business.execute("BEGIN")
    business.execute("CREATE ROLE shop")
    business.execute(grant.encode())
    business.execute("SET LOCAL ROLE shop")
    for statement in blocks("producers.md", "sql")[:2]:
        business.execute(statement.encode())
    business.execute("ROLLBACK")


def test_the_inbox_example_ships_once(business: psycopg.Connection) -> None:
    names = python_of("inbox.md")
    for _ in range(2):
        names["on_message"](business, str(UUID(int=1)), 42)
    assert business.execute("SELECT order_id FROM shipments").fetchall() == [(42,)]
    business.execute("UPDATE outbox_inbox SET received_at = now() - interval '31 days'")
    names["prune"](business)
    assert business.execute("SELECT FROM outbox_inbox").rowcount == 0
