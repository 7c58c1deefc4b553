"""What a person asks about dead letters costs what they cost, however large the table is."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from pgoutbox.cli import prune_run
from pgoutbox.database import letters, life
from pgoutbox.database.letters import Selection
from tests.support.outbox_rows import fill
from tests.support.plans import Prepared

if TYPE_CHECKING:
    import psycopg

CHOOSE = {"after_destination": "", "after_id": 0, "limit": 200}
MESSAGE = {"message_id": "00000000-0000-4000-8000-000000000000", "limit": 10, "id": 1}

OLD = {"keep": "2 days", "most": 1000}


def values(**conditions: str) -> dict[str, Any]:
    return letters._values(Selection(**conditions), None) | CHOOSE


CASES = {
    f"{name} {sorted(conditions)}": (statement, values(**conditions), "outbox_dead")
    for name, statement in [
        ("count", letters._COUNT),
        ("list", letters._LIST),
        ("choose", letters._CHOOSE),
    ]
    for conditions in ({}, {"destination": "mail"}, {"error": "x", "older_than": "2h"})
} | {
    "row": (life._ROW, MESSAGE, "outbox_pkey"),
    "known": (life._KNOWN, MESSAGE, "outbox_audit_message"),
    "audit": (life._AUDIT, MESSAGE, "outbox_audit_message"),
    "to delete": (prune_run.TO_DELETE, OLD | {"archive": False}, "outbox_done"),
    "to delete beside an archive": (prune_run.TO_DELETE, OLD | {"archive": True}, "outbox_done"),
    "to move": (prune_run.TO_MOVE, OLD, "outbox_done"),
}


@pytest.mark.parametrize("case", CASES)
def test_it_reads_an_index_and_never_the_table(conn: psycopg.Connection, case: str) -> None:
    fill(conn, 20_000, status="'done'", pending_since="NULL", done_at="now()")
    fill(conn, 300, status="'dead'", pending_since="NULL")
    conn.execute(
        "INSERT INTO outbox_audit (action, reason, outbox_id, message_id, destination)"
        " SELECT 'skip', 'why', n, gen_random_uuid(), 'mail' FROM generate_series(1, 5000) n"
    )
    conn.execute("ANALYZE outbox, outbox_audit")
    statement, parameters, index = CASES[case]
    rows = conn.execute(b"EXPLAIN (COSTS OFF) " + statement, parameters).fetchall()
    plan = "\n".join(text for (text,) in rows)
    assert index in plan, plan
    assert "Seq Scan" not in plan, plan


@pytest.mark.parametrize("statement", [letters._COUNT, letters._LIST, letters._CHOOSE])
def test_prepared_for_whatever_is_asked_it_reads_the_same_index(
    conn: psycopg.Connection, statement: bytes
) -> None:
    # What a driver prepares after some batches is planned without knowing the conditions.
    fill(conn, 20_000, status="'done'", pending_since="NULL", done_at="now()")
    fill(conn, 300, status="'dead'", pending_since="NULL")
    conn.execute("ANALYZE outbox")
    conn.execute("SET plan_cache_mode = force_generic_plan")
    plan = Prepared(conn, "desk", statement).explain(values(error="x"))
    assert {scan.rpartition(" ")[2] for scan in plan.scans} == {"outbox_dead"}
