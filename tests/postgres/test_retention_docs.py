"""What docs/retention.md shows is run as it stands there."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

from pgoutbox.dispatch.finalize import finalize
from pgoutbox.outcome import Finish
from tests.support.dispatching import claimed, settled
from tests.support.outbox_rows import insert
from tests.support.roles import login_role

if TYPE_CHECKING:
    import psycopg

    from pgoutbox.database.pool import Database

PAGE = Path(__file__).parents[2] / "docs" / "retention.md"
SQL = re.compile(r"^```sql\n(.*?)^```", re.DOTALL | re.MULTILINE)
GRANTS, LOOK_UP, DAYS = SQL.findall(PAGE.read_text(encoding="utf-8"))


async def test_an_archived_message_is_found_as_documented(
    db: Database, conn: psycopg.Connection
) -> None:
    conn.execute("SELECT outbox_archive_prepare()")
    insert(conn, aggregate_id="41")
    number = insert(conn, aggregate_id="42")
    batch = [settled(message, Finish()) for message in await claimed(db)]
    await finalize(db, batch, retried=False, retention="archive")
    [(done_at, *others)] = conn.execute(LOOK_UP.encode()).fetchall()
    assert others == [number, "default", "order_paid", 1]
    days = conn.execute(DAYS.encode()).fetchall()
    assert len(days) == 4
    assert days[0][1] <= done_at < days[0][2]


def test_the_documented_rights_are_those_that_check_asks_for(
    dsn: str, conn: psycopg.Connection
) -> None:
    with login_role(dsn) as role:
        conn.execute(GRANTS.replace("outbox_worker", role.name).encode())
        found = conn.execute(
            "SELECT has_table_privilege(r, 'outbox_archive', 'INSERT'),"
            " has_function_privilege(r, 'outbox_archive_prepare(integer)', 'EXECUTE'),"
            " has_function_privilege(r, 'outbox_archive_expire(interval)', 'EXECUTE')"
            " FROM (VALUES (%s::text)) AS role (r)",
            [role.name],
        )
        assert found.fetchone() == (True, True, True)
