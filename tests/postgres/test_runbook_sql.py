"""The SQL of the runbooks can be run, and changes nothing."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    import psycopg

RUNBOOKS = Path(__file__).parents[2] / "docs" / "runbooks"
SQL = re.compile(r"^```sql\n(.*?)^```", re.DOTALL | re.MULTILINE)
STATEMENTS = {
    f"{page.stem} {number}": statement
    for page in sorted(RUNBOOKS.glob("*.md"))
    for number, statement in enumerate(SQL.findall(page.read_text()))
}


@pytest.mark.parametrize("statement", STATEMENTS.values(), ids=STATEMENTS)
def test_a_statement_of_a_runbook_runs_and_only_reads(
    conn: psycopg.Connection[Any], statement: str
) -> None:
    with conn.transaction(force_rollback=True):
        conn.execute("SET TRANSACTION READ ONLY")
        assert conn.execute(statement.encode()).description
