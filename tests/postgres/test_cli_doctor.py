"""``pgoutbox doctor``: each trouble is made on purpose, and it is told what to do."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import psycopg
import pytest
from click.testing import CliRunner
from psycopg.types.json import Jsonb

from pgoutbox.cli.main import group
from pgoutbox.database.doctor import read_condition
from tests.support.horizons import held_snapshot, pass_transactions
from tests.support.observing import eventually
from tests.support.outbox_rows import fill, insert
from tests.support.roles import login_role

if TYPE_CHECKING:
    from click.testing import Result

FSYNC = "fsync is off"
"""The test's own server is quick and forgetful, and it is told so."""


def doctor(dsn: str, *words: str) -> Result:
    env = {"PGOUTBOX_DSN": dsn, "PGOUTBOX_DSN_FILE": None}
    return CliRunner().invoke(group, ["doctor", *words], env=env, catch_exceptions=False)


def findings(dsn: str) -> list[dict[str, Any]]:
    result = doctor(dsn, "--json")
    found: list[dict[str, Any]] = json.loads(result.stdout)["findings"]
    serious = [finding for finding in found if finding["severity"] != "note"]
    assert result.exit_code == (1 if serious else 0)
    return [finding for finding in found if FSYNC not in finding["seen"]]


def beat(conn: psycopg.Connection, *, age: str = "0 s") -> None:
    """The heartbeat of a worker that serves the default destination."""
    conn.execute(
        "INSERT INTO outbox_workers (incarnation, owner, version, state, slots, busy, destinations,"
        " seen_at) VALUES (gen_random_uuid(), 'pod-1', '1', 'running', 10, 0, %s,"
        " now() - %s::interval)",
        [Jsonb({"default": {}}), age],
    )


def test_a_healthy_outbox_has_no_findings(dsn: str, conn: psycopg.Connection) -> None:
    beat(conn)
    insert(conn)
    assert findings(dsn) == []


TROUBLES: dict[str, tuple[str, str, str, str]] = {
    "disabled trigger": (
        "ALTER TABLE outbox DISABLE TRIGGER zz_outbox_insert",
        "problem",
        "trigger zz_outbox_insert of public.outbox is disabled",
        "ENABLE TRIGGER zz_outbox_insert",
    ),
    "invalid index": (
        "UPDATE pg_index SET indisvalid = false WHERE indexrelid = 'outbox_ready'::regclass",
        "problem",
        "the index outbox_ready is invalid",
        "REINDEX INDEX CONCURRENTLY outbox_ready",
    ),
    "no autovacuum": (
        "ALTER TABLE outbox SET (autovacuum_enabled = off)",
        "problem",
        "autovacuum is off for public.outbox",
        "RESET (autovacuum_enabled)",
    ),
    "plain autovacuum": (
        "ALTER TABLE outbox RESET (autovacuum_vacuum_scale_factor)",
        "warning",
        "has lost the autovacuum settings",
        "autovacuum_vacuum_scale_factor = 0.01",
    ),
    "older schema": (
        "DELETE FROM outbox_migrations WHERE version = 7",
        "problem",
        "the schema is older than this pgoutbox",
        "pgoutbox migrate",
    ),
}


@pytest.mark.parametrize("trouble", TROUBLES)
def test_what_is_wrong_with_the_table_is_told_with_the_statement_that_repairs_it(
    dsn: str, conn: psycopg.Connection, trouble: str
) -> None:
    statement, severity, seen, do = TROUBLES[trouble]
    conn.execute(statement.encode())
    [finding] = findings(dsn)
    assert finding["severity"] == severity
    assert seen in finding["seen"]
    assert do in finding["do"]


MESSAGES: dict[str, tuple[dict[str, Any], str, str]] = {
    "unserved": ({"destination": "mail"}, "problem", "no worker serves mail"),
    "overdue": (
        {"available_at": "2020-01-01Z"},
        "warning",
        "a message for default could be claimed since",
    ),
    "expired": (
        {"status": "processing", "lease_owner": "a", "lease_until": "2020-01-01Z"},
        "warning",
        "1 message for default under a lease that ran out",
    ),
    "blocked": (
        {"status": "dead", "pending_since": None, "ordering_key": "k"},
        "warning",
        "1 lane of default blocked by a dead message",
    ),
    "dead": ({"status": "dead", "pending_since": None}, "note", "1 dead message for default"),
}


@pytest.mark.parametrize("trouble", MESSAGES)
def test_what_waits_for_too_long_is_told(dsn: str, conn: psycopg.Connection, trouble: str) -> None:
    row, severity, seen = MESSAGES[trouble]
    beat(conn)
    insert(conn, **row)
    [finding] = findings(dsn)
    assert (finding["severity"], seen in finding["seen"]) == (severity, True), finding


def test_a_silent_worker_is_worth_a_note(dsn: str, conn: psycopg.Connection) -> None:
    beat(conn, age="20 s")
    [finding] = findings(dsn)
    assert finding["severity"] == "note"
    assert "worker pod-1 was last seen 20 seconds ago" in finding["seen"]


def test_dead_rows_that_vacuum_has_not_removed_are_told(dsn: str, conn: psycopg.Connection) -> None:
    with held_snapshot(dsn):
        fill(conn, 12_000)
        conn.execute("DELETE FROM outbox")
        # Counters are told a moment later, up to PostgreSQL 14 by another process.
        found: list[dict[str, Any]] = []

        def told() -> bool:
            # A session tells what it counted when it is idle after a statement.
            conn.execute("SELECT 1")
            found[:] = [finding for finding in findings(dsn) if "dead rows" in finding["seen"]]
            return bool(found)

        eventually(told, "the dead rows are counted")
        [finding] = found
    assert finding["severity"] == "warning"
    assert "it was never vacuumed" in finding["seen"]


def test_who_holds_the_horizon_back_is_named_with_what_to_do(
    dsn: str, conn: psycopg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pgoutbox.database.horizon.LATE_SECONDS", 0.0)
    with held_snapshot(dsn) as report:
        pass_transactions(conn)
        [finding] = findings(dsn)
        pid = report.info.backend_pid
    assert finding["severity"] == "warning"
    assert f"by backend {pid} (" in finding["seen"]
    assert f"SELECT pg_terminate_backend({pid})" in finding["do"]


def test_who_waits_for_a_lock_on_the_whole_table_is_told(
    dsn: str, conn: psycopg.Connection
) -> None:
    def waiting() -> int:
        found = read_condition(conn, schema="public")
        assert found is not None
        return found.waiting_for_locks

    with psycopg.connect(dsn) as holder, psycopg.connect(dsn, autocommit=True) as migration:
        holder.execute("SELECT FROM outbox LIMIT 1")
        assert waiting() == 0
        migration.pgconn.send_query(b"ALTER TABLE outbox ADD remark text")
        eventually(lambda: waiting() == 1, "the lock is waited for")
        migration.cancel_safe()
        while migration.pgconn.get_result():
            pass


def test_people_read_what_it_is_and_below_what_to_do_the_worst_first(
    dsn: str, conn: psycopg.Connection
) -> None:
    beat(conn, age="20 s")
    conn.execute("ALTER TABLE outbox SET (autovacuum_enabled = off)")
    result = doctor(dsn)
    lines = [line for line in result.stdout.splitlines() if not line.startswith(" ")]
    assert [line.split(":")[0] for line in lines if FSYNC not in line] == ["problem", "note"]
    assert "    ALTER TABLE public.outbox RESET (autovacuum_enabled);" in result.stdout
    assert result.exit_code == 1


@pytest.mark.parametrize("role", ["outbox_operator", "outbox_desk", "outbox_dispatcher"])
def test_it_works_for_whoever_may_ask_for_the_counts(
    dsn: str, conn: psycopg.Connection, role: str
) -> None:
    insert(conn, destination="mail")
    with login_role(dsn, role) as person:
        [finding] = findings(person.dsn)
    assert "no worker serves mail" in finding["seen"]


def test_others_are_told_what_they_lack(dsn: str) -> None:
    with login_role(dsn, "outbox_producer") as person:
        result = doctor(person.dsn)
    assert result.exit_code == 1
    assert 'GRANT EXECUTE ON FUNCTION "public".outbox_stats(integer)' in result.stderr


def test_without_an_outbox_it_says_so(empty_dsn: str) -> None:
    result = doctor(empty_dsn)
    assert result.exit_code == 1
    assert "there is no outbox in schema" in result.stderr
