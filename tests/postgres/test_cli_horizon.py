"""What `pgoutbox check` and `pgoutbox status` say while something holds back the xmin horizon."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner

from pgoutbox.cli.main import group
from tests.support.horizons import held_snapshot, pass_transactions
from tests.support.roles import login_role

if TYPE_CHECKING:
    import psycopg

CHECK = ("check", "--to", "noop://")
STATUS = ("status",)
FIELD = "the xmin horizon"


def run(dsn: str, *words: str) -> str:
    environ = {"PGOUTBOX_DSN": dsn, "PGOUTBOX_DATABASE__INSECURE": "true"}
    result = CliRunner().invoke(group, list(words), env=environ)
    assert result.exit_code == 0, result.output
    return result.stdout


def as_json(dsn: str, *words: str) -> dict[str, Any]:
    said: dict[str, Any] = json.loads(run(dsn, *words, "--json").splitlines()[-1])
    return said


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pgoutbox.database.horizon.LATE_SECONDS", 0.0)


@pytest.mark.usefixtures("impatient")
def test_both_name_a_held_snapshot_and_what_to_do(dsn: str, conn: psycopg.Connection) -> None:
    with held_snapshot(dsn) as report:
        pass_transactions(conn)
        pid = report.info.backend_pid
        for words in (CHECK, STATUS):
            lines = [line for line in run(dsn, *words).splitlines() if FIELD in line]
            (told,) = (line for line in lines if line.startswith("warning:"))
            assert f"by backend {pid} (" in told
            assert "application report, idle in transaction)" in told
            assert f"SELECT pg_terminate_backend({pid})" in told
            assert "idle_in_transaction_session_timeout" in told


@pytest.mark.usefixtures("impatient")
def test_machines_are_told_the_same(dsn: str, conn: psycopg.Connection) -> None:
    with held_snapshot(dsn) as report:
        pass_transactions(conn)
        pid = report.info.backend_pid
        (warning,) = [one for one in as_json(dsn, *CHECK)["warnings"] if one["field"] == FIELD]
        assert f"backend {pid} " in warning["rule"]
        seen = as_json(dsn, *STATUS)["horizon"]
    assert seen["hidden"] is False
    assert seen["age_transactions"] >= 200
    assert seen["age_seconds"] > 0
    assert [one["kind"] for one in seen["holders"] if one["pid"] == pid] == ["backend"]
    assert [f"backend {pid} " in told for told in seen["warnings"]] == [True]


def test_what_has_just_begun_is_no_reason_to_warn(dsn: str, conn: psycopg.Connection) -> None:
    with held_snapshot(dsn):
        pass_transactions(conn)
        assert FIELD not in run(dsn, *CHECK)
        assert FIELD not in run(dsn, *STATUS)
        assert "transactions back, for up to" in as_json(dsn, *CHECK)["facts"]["horizon"]
        assert as_json(dsn, *STATUS)["horizon"]["warnings"] == []


def test_a_role_that_may_not_look_is_told_which_grant_to_ask_for(
    dsn: str, conn: psycopg.Connection
) -> None:
    with login_role(dsn, "EXECUTE ON FUNCTION outbox_stats(integer)") as role:
        assert as_json(role.dsn, *STATUS)["horizon"] is None
        (told,) = [one for one in run(role.dsn, *STATUS).splitlines() if FIELD in one]
        assert told.startswith(f"{FIELD} is unknown: this role may not call outbox_horizon()")
        conn.execute(told.partition("ask the owner for ")[2].encode())
        assert FIELD not in run(role.dsn, *STATUS)


def test_a_database_without_the_function_is_told_to_migrate(
    dsn: str, conn: psycopg.Connection
) -> None:
    conn.execute("DROP FUNCTION outbox_horizon()")
    told = f"{FIELD} is unknown: outbox_horizon() is missing: run `pgoutbox migrate`"
    assert told in run(dsn, *STATUS).splitlines()


def test_check_says_which_grant_the_owner_lacks_where_not_all_is_known(
    dsn: str, conn: psycopg.Connection
) -> None:
    with login_role(dsn) as owner:
        conn.execute(f"ALTER FUNCTION outbox_horizon() OWNER TO {owner.name}".encode())
        told = as_json(dsn, *CHECK)["facts"]["horizon"]
        assert "not all of it is known" in told
        grant = told.partition("As a superuser: ")[2]
        assert grant == f"GRANT pg_read_all_stats TO {owner.name}"
        conn.execute(grant.encode())
        assert "not all" not in as_json(dsn, *CHECK)["facts"]["horizon"]
