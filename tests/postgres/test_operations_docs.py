"""What docs/operations.md tells an operator to run does what it says."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner
from psycopg import errors

from pgoutbox.cli.main import group
from tests.support.leases import claim_as
from tests.support.outbox_rows import insert
from tests.support.roles import login_role
from tests.support.workers import WorkerProcess

if TYPE_CHECKING:
    import psycopg

    from pgoutbox.database.pool import Database

PAGE = Path(__file__).parents[2] / "docs" / "operations.md"
SQL = re.compile(r"^```sql\n(.*?)^```", re.DOTALL | re.MULTILINE)
DEAD = {
    "status": "dead",
    "pending_since": None,
    "attempts": 12,
    "reclaims": 1,
    "lease_version": 12,
    "last_error": "answered 410",
}


def section(title: str) -> str:
    """The one block of SQL below this heading."""
    text = PAGE.read_text(encoding="utf-8").split(f"## {title}\n")[1].split("\n## ")[0]
    (block,) = SQL.findall(text)
    return str(block)


def requeue(conn: psycopg.Connection, number: int) -> int:
    return conn.execute(section("Dead letters").replace("42", str(number)).encode()).rowcount


@pytest.mark.parametrize("done_at", [None, "2024-01-01Z"])
async def test_a_requeued_dead_letter_is_claimed_again_and_somebody_is_accountable(
    conn: psycopg.Connection, db: Database, done_at: str | None
) -> None:
    insert(conn, **DEAD)
    number = insert(conn, done_at=done_at, **DEAD)
    identity = conn.execute("SELECT message_id FROM outbox WHERE id = %s", [number]).fetchone()
    assert requeue(conn, number) == 1
    (message,) = await claim_as("pod-1", db, 10)
    assert (message.id, message.attempts, message.reclaims) == (number, 1, 0)
    assert message.lease_version == 14
    assert (message.message_id,) == identity
    noted = conn.execute(
        "SELECT action, outbox_id, message_id, details, db_user = session_user FROM outbox_audit"
    ).fetchall()
    details = {"last_error": "answered 410"}
    assert noted == [("requeue", number, message.message_id, details, True)]


def test_nothing_but_a_dead_letter_without_an_ordering_key_is_requeued(
    conn: psycopg.Connection,
) -> None:
    lease = {"lease_owner": "pod-1", "lease_until": "2999-01-01Z"}
    for columns in (
        {},
        {"status": "processing", **lease},
        {"status": "done", "pending_since": None, "done_at": "2024-01-01Z"},
        {"ordering_key": "k", **DEAD},
    ):
        number = insert(conn, **columns)
        before = conn.execute("SELECT * FROM outbox WHERE id = %s", [number]).fetchone()
        assert requeue(conn, number) == 0
        after = conn.execute("SELECT * FROM outbox WHERE id = %s", [number]).fetchone()
        assert after == before
    assert conn.execute("SELECT FROM outbox_audit").rowcount == 0


def grants(worker: str, monitor: str) -> bytes:
    text = re.sub(r"CREATE ROLE .*\n", "", section("Roles"))
    return (
        text.replace("outbox_worker ", f"{worker} ")
        .replace("outbox_worker;", f"{worker};")
        .replace("outbox_monitor", monitor)
        .encode()
    )


def test_the_documented_rights_suffice_for_a_worker_and_for_monitoring(
    dsn: str, conn: psycopg.Connection
) -> None:
    insert(conn)
    with login_role(dsn) as worker, login_role(dsn) as monitor:
        conn.execute(grants(worker.name, monitor.name))
        environ = {"PGOUTBOX_DSN": worker.dsn, "PGOUTBOX_DATABASE__INSECURE": "true"}
        words = ["check", "--to", "noop://", "--json"]
        checked = json.loads(CliRunner().invoke(group, words, env=environ).stdout)
        assert (checked["ok"], checked["problems"]) == (True, [])
        with WorkerProcess(worker.dsn, "noop://", DATABASE__INSECURE="true").started() as process:
            process.wait_for("delivered")
            assert process.stop().code == 0
            assert not process.events("database failed")
            assert process.events("drain ended")[0]["published"] == 1
        told = CliRunner().invoke(group, ["status"], env={"PGOUTBOX_DSN": monitor.dsn})
        assert told.exit_code == 0, told.stderr
        assert "nothing is waiting" in told.stdout


def test_the_documented_rights_of_monitoring_show_no_message(
    dsn: str, conn: psycopg.Connection
) -> None:
    with login_role(dsn) as worker, login_role(dsn) as monitor:
        conn.execute(grants(worker.name, monitor.name))
        conn.execute(f"SET ROLE {monitor.name}".encode())
        with pytest.raises(errors.InsufficientPrivilege):
            conn.execute("SELECT FROM outbox")
        conn.execute("RESET ROLE")
