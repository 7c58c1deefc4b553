"""``pgoutbox check`` against a real server."""

from __future__ import annotations

import json
from typing import Any

import psycopg
import pytest
from click.testing import CliRunner
from psycopg.conninfo import make_conninfo

from pgoutbox.cli.main import group
from pgoutbox.database.checks import Wanted, check_database
from pgoutbox.database.facts import read_facts
from pgoutbox.database.migrate import apply
from tests.support.roles import login_role

COLUMNS = (
    "status, attempts, reclaims, available_at, pending_since, lease_owner, lease_until,"
    " lease_version, last_error, done_at"
)
WORKER = (
    f"SELECT, DELETE, UPDATE ({COLUMNS}) ON outbox",
    "SELECT, UPDATE (wanted, changed_at) ON outbox_wakeup",
    "SELECT, INSERT, UPDATE, DELETE ON outbox_workers",
    "SELECT ON outbox_migrations",
    "EXECUTE ON FUNCTION outbox_archive_partitions()",
)


def check(dsn: str, **environ: str) -> tuple[int, dict[str, Any]]:
    result = CliRunner().invoke(
        group,
        ["check", "--json", "--to", "noop://"],
        env={"PGOUTBOX_DSN": dsn, "PGOUTBOX_DATABASE__INSECURE": "true"} | environ,
    )
    return result.exit_code, json.loads(result.stdout.splitlines()[-1])


def rules(dsn: str, **environ: str) -> str:
    code, said = check(dsn, **environ)
    assert code == 1
    return "\n".join(f"{one['field']} {one['rule']} {one['advice']}" for one in said["problems"])


def insert(dsn: str, destination: str = "default") -> None:
    with psycopg.connect(dsn) as conn:
        conn.execute(
            "INSERT INTO outbox (aggregate_type, aggregate_id, event_type, payload, destination)"
            " VALUES ('order', '1', 'placed', '{}', %s)",
            [destination],
        )


def test_a_migrated_database_is_fine(dsn: str) -> None:
    code, said = check(dsn)
    assert code == 0
    assert said["problems"] == []
    assert said["facts"]["wakeup"] == "notifications arrive"
    assert said["facts"]["pooler"] == "none"


def test_people_get_lines(dsn: str) -> None:
    environ = {"PGOUTBOX_DSN": dsn, "PGOUTBOX_DATABASE__INSECURE": "true"}
    result = CliRunner().invoke(group, ["check", "--to", "noop://"], env=environ)
    assert result.exit_code == 0
    assert "server        PostgreSQL 1" in result.stdout
    assert result.stdout.splitlines()[-1] == "this works"
    assert "warning: PGOUTBOX_DATABASE__INSECURE" in result.stdout


@pytest.mark.parametrize(
    ("endpoint", "fact", "warned"),
    [
        ("", "off", []),
        ("http://me:secret@collector.example:4318", "http://collector.example:4318", []),
        ("collector.example:4318", "off", ["tracing"]),
    ],
)
def test_where_spans_go_is_told_and_what_keeps_them_from_it_is_a_warning(
    dsn: str, endpoint: str, fact: str, warned: list[str]
) -> None:
    code, said = check(dsn, OTEL_EXPORTER_OTLP_ENDPOINT=endpoint)
    assert code == 0
    assert said["facts"]["tracing"] == fact
    assert [one["field"] for one in said["warnings"] if one["field"] == "tracing"] == warned


def test_a_sampler_that_nobody_knows_is_a_warning_and_there_are_spans(dsn: str) -> None:
    endpoint = "http://collector.example:4318"
    other = {"OTEL_TRACES_SAMPLER": "sometimes", "OTEL_EXPORTER_OTLP_ENDPOINT": endpoint}
    code, said = check(dsn, **other)
    assert code == 0
    assert said["facts"]["tracing"] == endpoint
    [warning] = [one for one in said["warnings"] if one["field"] == "OTEL_TRACES_SAMPLER"]
    assert warning["value"] == "sometimes"
    assert "parentbased_traceidratio" in warning["advice"]


def test_a_database_without_the_schema_says_what_to_run(empty_dsn: str) -> None:
    assert "pgoutbox migrate" in rules(empty_dsn)


def test_the_schema_of_the_settings_is_checked(empty_dsn: str) -> None:
    with psycopg.connect(empty_dsn) as conn:
        apply(conn, schema="events")
    assert "pgoutbox migrate" in rules(empty_dsn)
    code, said = check(empty_dsn, PGOUTBOX_DATABASE__SCHEMA="events")
    assert (code, said["problems"]) == (0, [])


def test_a_database_that_does_not_answer_is_told_in_a_sentence_without_the_password() -> None:
    told = rules("host=127.0.0.1 port=1 user=app password=geheim-47")
    assert "database does not answer: connection failed" in told
    assert "geheim-47" not in told


def test_a_role_with_what_a_worker_needs_is_fine(dsn: str) -> None:
    with login_role(dsn, *WORKER) as role:
        assert read_facts(role.dsn, role.dsn, schema="public").missing_rights == []
        code, said = check(role.dsn)
        assert (code, said["problems"]) == (0, [])


@pytest.mark.parametrize(
    ("without", "missing"),
    [
        (0, ["SELECT on outbox", "UPDATE on outbox"]),
        (1, ["SELECT on outbox_wakeup", "UPDATE on outbox_wakeup"]),
        (2, ["INSERT on outbox_workers", "DELETE on outbox_workers"]),
        (3, ["SELECT on outbox_migrations"]),
    ],
)
def test_rights_that_are_missing_are_named(dsn: str, without: int, missing: list[str]) -> None:
    grants = WORKER[:without] + WORKER[without + 1 :]
    with login_role(dsn, *grants) as role:
        told = rules(role.dsn)
    for right in missing:
        assert right in told


def test_one_column_that_may_not_be_updated_is_noticed(dsn: str) -> None:
    grants = (WORKER[0].replace(" done_at", " dedup_key"), *WORKER[1:])
    with login_role(dsn, *grants) as role:
        assert read_facts(role.dsn, role.dsn, schema="public").missing_rights == [
            "UPDATE on outbox"
        ]


def test_a_schema_that_may_not_be_used_is_named(empty_dsn: str) -> None:
    with psycopg.connect(empty_dsn) as conn:
        apply(conn, schema="events")
    with login_role(empty_dsn) as role:
        told = rules(role.dsn, PGOUTBOX_DATABASE__SCHEMA="events")
    assert "USAGE on schema events" in told
    assert "no outbox" not in told


@pytest.mark.parametrize(
    ("parameter", "value"),
    [
        ("default_transaction_isolation", "repeatable read"),
        ("default_transaction_isolation", "serializable"),
        ("default_transaction_read_only", "on"),
    ],
)
def test_defaults_that_break_claims_are_refused(dsn: str, parameter: str, value: str) -> None:
    options = f"-c {parameter}={value}".replace("repeatable read", r"repeatable\ read")
    assert f"{parameter} must be" in rules(make_conninfo(dsn, options=options))


def test_a_sequence_behind_the_table_is_found(dsn: str) -> None:
    insert(dsn)
    insert(dsn)
    assert check(dsn)[0] == 0
    with psycopg.connect(dsn) as conn:
        conn.execute("SELECT setval('outbox_id_seq', 1)")
    assert "outbox_id_seq is behind the newest message's id (2)" in rules(dsn)


def test_messages_for_a_destination_that_is_not_served_are_warned_of(dsn: str) -> None:
    for destination in ("default", "orders", "billing", "orders"):
        insert(dsn, destination)
    code, said = check(dsn)
    assert code == 0
    [warning] = [one for one in said["warnings"] if one["field"] == "destinations"]
    assert warning["rule"].endswith("billing, orders")


def test_options_that_a_pooler_refuses_are_named(dsn: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_given: Any, **_more: Any) -> None:
        raise psycopg.OperationalError("FATAL:  unsupported startup parameter: options")

    monkeypatch.setattr(psycopg, "connect", refuse)
    [problem] = check_database(dsn, dsn, Wanted()).problems
    assert "holds options that the pooler does not take" in problem.rule


def test_nothing_of_psycopg_escapes(dsn: str) -> None:
    verdict = check_database(make_conninfo(dsn, dbname="nowhere"), dsn, Wanted())
    assert 'database "nowhere" does not exist' in verdict.problems[0].rule
    assert verdict.facts is None


def test_the_archive_is_looked_at_when_messages_are_to_go_there(
    dsn: str, conn: psycopg.Connection
) -> None:
    def warnings(at: str) -> str:
        code, said = check(at, PGOUTBOX_RETENTION__MODE="archive")
        assert code == 0
        return "\n".join(one["field"] + " " + one["rule"] for one in said["warnings"])

    assert "outbox_archive has no partition for 4 of the 4 days" in warnings(dsn)
    conn.execute("SELECT outbox_archive_prepare()")
    assert "archive" not in warnings(dsn)
    archiving = (
        "INSERT ON outbox_archive",
        "EXECUTE ON FUNCTION outbox_archive_prepare, outbox_archive_expire",
    )
    with login_role(dsn, *WORKER) as role:
        said = warnings(role.dsn)
    for right in (
        "INSERT on outbox_archive",
        "outbox_archive_prepare(integer)",
        "expire(interval)",
    ):
        assert right in said
    with login_role(dsn, *WORKER, *archiving) as role:
        assert "archive" not in warnings(role.dsn)


@pytest.mark.parametrize("ahead", [0, 3])
def test_a_detached_day_that_keeps_others_from_being_made_is_named_with_the_way_out(
    dsn: str, conn: psycopg.Connection, ahead: int
) -> None:
    def in_the_way() -> list[dict[str, Any]]:
        told = check(dsn, PGOUTBOX_RETENTION__MODE="archive")[1]["warnings"]
        return [one for one in told if "is in the way" in one["rule"]]

    conn.execute("SELECT outbox_archive_prepare()")
    conn.execute("CREATE TABLE outbox_archive_20200101 ()")
    assert in_the_way() == []
    days = conn.execute("SELECT name FROM outbox_archive_partitions()").fetchall()
    (name,) = days[ahead]
    conn.execute(f"ALTER TABLE outbox_archive DETACH PARTITION {name}".encode())
    with pytest.raises(psycopg.errors.DuplicateTable):
        conn.execute("SELECT outbox_archive_prepare()")
    [warning] = in_the_way()
    assert warning["field"] == name
    statement = warning["advice"].partition("As its owner: ")[2].partition(";")[0]
    conn.execute(statement.encode())
    assert conn.execute("SELECT outbox_archive_prepare()").fetchone() == (1,)
    assert in_the_way() == []
