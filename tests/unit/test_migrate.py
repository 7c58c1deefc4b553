from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from pgoutbox.database.migrate import script
from pgoutbox.database.migrations import (
    Applied,
    Migration,
    available,
    check_schema_name,
    check_server,
    in_order,
    judge,
    unapplied,
)
from pgoutbox.errors import MigrationError

if TYPE_CHECKING:
    from pathlib import Path

ONE = Migration(1, "outbox", "CREATE TABLE outbox ();\n")
TWO = Migration(2, "more", "CREATE TABLE more ();\n")
THREE = Migration(3, "most", "CREATE TABLE most ();\n")


def recorded(*migrations: Migration) -> list[Applied]:
    return [Applied(m.version, m.name, m.checksum) for m in migrations]


def test_an_empty_database_gets_everything_in_order() -> None:
    assert unapplied([ONE, TWO], [], schema="app") == [ONE, TWO]


def test_only_what_is_missing_is_applied() -> None:
    assert unapplied([ONE, TWO, THREE], recorded(ONE), schema="app") == [TWO, THREE]
    assert unapplied([ONE, TWO], recorded(ONE, TWO), schema="app") == []


def test_a_changed_file_is_refused_by_name_with_both_checksums() -> None:
    edited = Migration(1, "outbox", ONE.text + "-- one more thought\n")
    with pytest.raises(MigrationError) as refused:
        unapplied([edited, TWO], recorded(ONE), schema="app")
    for part in ("0001_outbox.sql", "app", ONE.checksum[:12], edited.checksum[:12]):
        assert part in str(refused.value)


def test_line_endings_do_not_change_a_checksum() -> None:
    assert Migration(1, "outbox", ONE.text.replace("\n", "\r\n")).checksum == ONE.checksum


def test_a_database_newer_than_the_code_is_refused_with_both_versions() -> None:
    with pytest.raises(MigrationError, match=r"version 3, newer than .* up to 2: migrate with"):
        unapplied([ONE, TWO], recorded(ONE, TWO, THREE), schema="app")


def test_a_gap_in_the_bookkeeping_is_refused() -> None:
    with pytest.raises(MigrationError, match="gaps below version 2"):
        unapplied([ONE, TWO], recorded(TWO), schema="app")


def test_a_worker_accepts_the_same_and_a_newer_schema() -> None:
    judge([ONE, TWO], recorded(ONE, TWO), schema="app")
    judge([ONE, TWO], recorded(ONE, TWO, THREE), schema="app")


def test_a_worker_refuses_a_missing_an_older_and_an_altered_schema_and_says_what_to_do() -> None:
    advice = "run `pgoutbox migrate --schema app`"
    with pytest.raises(MigrationError, match=f"no outbox in schema .app.*{advice}"):
        judge([ONE, TWO], [], schema="app")
    with pytest.raises(MigrationError, match=f"version 1, older than the version 2 .*{advice}"):
        judge([ONE, TWO], recorded(ONE), schema="app")
    with pytest.raises(MigrationError, match=r"is not the 0001_outbox.sql"):
        judge([Migration(1, "outbox", "other"), TWO], recorded(ONE, TWO), schema="app")


def test_only_numbered_files_are_migrations_and_their_order_is_by_number(tmp_path: Path) -> None:
    for name in ("0002_more.sql", "0001_outbox.sql", "roles.sql", "README.md"):
        (tmp_path / name).write_text(name)
    found = in_order(tmp_path.iterdir())
    assert [migration.title for migration in found] == ["0001_outbox", "0002_more"]
    assert found[0].text == "0001_outbox.sql"


@pytest.mark.parametrize(
    "names", [[], ["0002_more.sql"], ["0001_a.sql", "0001_b.sql"], ["0001_a.sql", "0003_c.sql"]]
)
def test_files_that_are_not_numbered_one_by_one_are_refused(
    tmp_path: Path, names: list[str]
) -> None:
    for name in names:
        (tmp_path / name).write_text("")
    with pytest.raises(MigrationError, match="install pgoutbox again"):
        in_order(tmp_path.iterdir())


def test_migrations_are_ascii_so_that_no_client_encoding_can_change_them() -> None:
    assert all(migration.text.isascii() for migration in available())


@pytest.mark.parametrize("name", ["public", "app", "App_2", "_x", "a" * 63])
def test_a_plain_schema_name_is_accepted(name: str) -> None:
    check_schema_name(name)


@pytest.mark.parametrize("name", ["", "pg_app", "2app", 'a"b', "a-b", "a.b", "a" * 64, "app\n"])
def test_any_other_schema_name_is_refused_and_shown(name: str) -> None:
    with pytest.raises(MigrationError, match="cannot be the outbox's schema") as refused:
        check_schema_name(name)
    assert repr(name) in str(refused.value)


def test_a_server_that_is_too_old_or_not_utf8_is_refused() -> None:
    check_server(140_000, "UTF8")
    check_server(180_006, "UTF8")
    with pytest.raises(MigrationError, match="PostgreSQL 13: pgoutbox needs 14"):
        check_server(130_022, "UTF8")
    with pytest.raises(MigrationError, match="encoding is SQL_ASCII"):
        check_server(180_006, "SQL_ASCII")


def test_the_script_is_one_transaction_that_also_does_the_bookkeeping() -> None:
    printed = script("app")
    statements = [line for line in printed.splitlines() if line and not line.startswith("--")]
    assert (statements[0], statements[-1]) == ("BEGIN;", "COMMIT;")
    assert 'SET LOCAL search_path = "app", pg_temp;' in printed
    for migration in available():
        assert migration.text in printed
        assert f"VALUES ({migration.version}, '{migration.name}', '{migration.checksum}')" in (
            printed
        )


def test_the_script_after_the_newest_version_holds_no_migration() -> None:
    newest = available()[-1]
    assert newest.title in script("app", after=newest.version - 1)
    assert newest.title not in script("app", after=newest.version)
