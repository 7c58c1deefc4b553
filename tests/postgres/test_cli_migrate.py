from __future__ import annotations

from typing import TYPE_CHECKING

import psycopg
import pytest
from click.testing import CliRunner

from pgoutbox.cli.main import group
from pgoutbox.database.migrations import available

if TYPE_CHECKING:
    from pathlib import Path

    from click.testing import Result

EVERY = ", ".join(migration.title for migration in available())


def pgoutbox(*arguments: str, dsn: str | None = None) -> Result:
    env = {"PGOUTBOX_DSN": dsn, "PGOUTBOX_DSN_FILE": None, "PGOUTBOX_DATABASE__SCHEMA": None}
    return CliRunner().invoke(group, arguments, env=env, catch_exceptions=False)


def test_migrate_says_what_it_applied_and_then_that_nothing_is_left(empty_dsn: str) -> None:
    first = pgoutbox("migrate", dsn=empty_dsn)
    assert (first.exit_code, first.output) == (0, f'applied {EVERY} to schema "public"\n')
    again = pgoutbox("migrate", dsn=empty_dsn)
    assert (again.exit_code, again.output) == (0, 'schema "public" is up to date\n')


def test_check_exits_with_1_and_names_what_is_missing_until_it_is_applied(empty_dsn: str) -> None:
    before = pgoutbox("migrate", "--check", dsn=empty_dsn)
    assert before.exit_code == 1
    assert before.output == f'schema "public" lacks {EVERY}: run `pgoutbox migrate`\n'
    pgoutbox("migrate", dsn=empty_dsn)
    after = pgoutbox("migrate", "--check", dsn=empty_dsn)
    assert (after.exit_code, after.output) == (0, 'schema "public" is up to date\n')


def test_a_check_changes_nothing(empty_dsn: str) -> None:
    pgoutbox("migrate", "--check", "--schema", "app", dsn=empty_dsn)
    with psycopg.connect(empty_dsn) as conn:
        row = conn.execute("SELECT count(*) FROM pg_namespace WHERE nspname = 'app'").fetchone()
    assert row == (0,)


def test_the_printed_sql_migrates_and_the_check_agrees(empty_dsn: str) -> None:
    printed = pgoutbox("migrate", "--sql", "--schema", "app")
    assert printed.exit_code == 0
    with psycopg.connect(empty_dsn, autocommit=True) as conn:
        conn.execute(printed.stdout.encode())
    checked = pgoutbox("migrate", "--check", "--schema", "app", dsn=empty_dsn)
    assert (checked.exit_code, checked.output) == (0, 'schema "app" is up to date\n')


def test_the_dsn_may_come_from_a_file_or_from_the_command_line(
    empty_dsn: str, tmp_path: Path
) -> None:
    secret = tmp_path / "dsn"
    secret.write_text(empty_dsn + "\n")
    env = {"PGOUTBOX_DSN": None, "PGOUTBOX_DSN_FILE": str(secret)}
    assert CliRunner().invoke(group, ["migrate"], env=env).exit_code == 0
    assert pgoutbox("migrate", "--check", "--dsn", empty_dsn).exit_code == 0


def test_a_database_newer_than_this_release_is_refused_in_one_sentence(dsn: str) -> None:
    with psycopg.connect(dsn) as conn:
        conn.execute("INSERT INTO outbox_migrations VALUES (99, 'later', 'abc')")
    for arguments in (["migrate"], ["migrate", "--check"]):
        refused = pgoutbox(*arguments, dsn=dsn)
        assert refused.exit_code == 1
        assert refused.stderr.startswith('pgoutbox: schema "public" is at version 99, newer than')


def test_a_missing_dsn_is_a_problem_with_the_settings() -> None:
    refused = pgoutbox("migrate")
    assert refused.exit_code == 78
    assert "PGOUTBOX_DSN" in refused.stderr


@pytest.mark.parametrize("arguments", [["--sql", "--check"], ["--after", "1"]])
def test_options_that_make_no_sense_together_are_a_usage_error(arguments: list[str]) -> None:
    assert pgoutbox("migrate", *arguments).exit_code == 2


def test_a_version_that_does_not_exist_is_a_usage_error_and_the_newest_has_nothing_after_it() -> (
    None
):
    newest = len(available())
    refused = pgoutbox("migrate", "--sql", "--after", "999")
    assert refused.exit_code == 2
    assert refused.stdout == ""
    assert f"there is no migration 999; the newest is {newest}" in refused.stderr
    assert pgoutbox("migrate", "--sql", "--after", str(newest)).exit_code == 0
