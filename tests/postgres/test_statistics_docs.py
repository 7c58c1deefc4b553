from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

from pgoutbox.database import desk
from tests.support.outbox_rows import insert

if TYPE_CHECKING:
    import psycopg

PAGE = Path(__file__).parents[2] / "docs" / "operations.md"
QUERY = re.compile(r"^```sql\n(.*?)^```", re.DOTALL | re.MULTILINE)


def test_each_documented_query_runs_and_has_something_to_say(conn: psycopg.Connection) -> None:
    number = insert(conn, status="dead", pending_since=None, ordering_key="k")
    assert desk.skip(conn, number, "it is in the way", schema="public").done
    found = QUERY.findall(PAGE.read_text(encoding="utf-8"))
    queries = [query for query in found if query.startswith("SELECT")]
    answered = [conn.execute(query.encode()).rowcount for query in queries]
    assert len(answered) == 2
    assert min(answered) >= 1
