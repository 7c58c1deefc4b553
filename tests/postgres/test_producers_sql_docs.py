"""The programs of docs/producers-sql.md: their SQL works, with a producer's rights alone."""

from __future__ import annotations

import re
from pathlib import Path

import psycopg
import pytest

from tests.support.roles import login_role

PAGE = Path(__file__).parents[2] / "docs" / "producers-sql.md"
FENCE = re.compile(r"^```(\w+)\n(.*?)^```", re.DOTALL | re.MULTILINE)
CALL = re.compile(r"SELECT outbox_enqueue\(.*?event_type => '\w+', payload => [^)]+\)", re.DOTALL)
PLACEHOLDERS = {r"\$1::bigint": "7", r"\$1": "'7'", r"\$2": "'{}'", r"\?::jsonb": "'{}'::jsonb"}


def fences(language: str) -> list[str]:
    return [text for kind, text in FENCE.findall(PAGE.read_text()) if kind == language]


@pytest.mark.parametrize("language", ["go", "java", "js"])
def test_what_a_program_sends_enqueues_its_message(
    dsn: str, conn: psycopg.Connection, language: str
) -> None:
    [program] = fences(language)
    [statement] = CALL.findall(program)
    for placeholder, value in PLACEHOLDERS.items():
        statement = re.sub(placeholder, value, statement)
    statement = statement.replace("?", "'7'")
    with login_role(dsn, "outbox_producer") as role, psycopg.connect(role.dsn) as producer:
        producer.execute(statement.encode())
    assert conn.execute("SELECT aggregate_id, event_type FROM outbox").fetchall() == [
        ("7", "OrderPlaced")
    ]


def test_the_trigger_announces_each_row_in_its_transaction(conn: psycopg.Connection) -> None:
    for block in fences("sql"):
        conn.execute(block.encode())
    conn.execute("INSERT INTO orders (total) VALUES (42)")
    assert conn.execute("SELECT aggregate_id, payload FROM outbox").fetchall() == [
        ("1", {"id": 1, "total": 42})
    ]
