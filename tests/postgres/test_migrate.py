from __future__ import annotations

import re
import uuid
from typing import TYPE_CHECKING, Any

import psycopg
import pytest
from psycopg import errors, sql
from psycopg.conninfo import make_conninfo

from pgoutbox.database import migrate
from pgoutbox.database.migrations import Migration, available
from pgoutbox.errors import MigrationError
from tests.support.roles import login_role

if TYPE_CHECKING:
    from collections.abc import Iterator

ROW = (
    "INSERT INTO {} (aggregate_type, aggregate_id, event_type, payload) VALUES (%s, 'i', 'e', '1')"
)


@pytest.fixture
def empty(empty_dsn: str) -> Iterator[psycopg.Connection]:
    with psycopg.connect(empty_dsn, autocommit=True) as connection:
        yield connection


def extend(monkeypatch: pytest.MonkeyPatch, text: str) -> Migration:
    """One more migration than the release has."""
    known = available()
    more = Migration(known[-1].version + 1, "more", text)
    monkeypatch.setattr(migrate, "available", lambda: [*known, more])
    return more


def one(conn: psycopg.Connection, query: str, *parameters: object) -> Any:
    row = conn.execute(query.encode(), parameters).fetchone()
    assert row is not None
    return row[0]


def relations(conn: psycopg.Connection) -> int:
    count: int = one(conn, "SELECT count(*) FROM pg_class WHERE relname LIKE 'outbox%%'")
    return count


def test_an_empty_database_is_migrated_and_remembers_by_whom(empty: psycopg.Connection) -> None:
    assert migrate.apply(empty, schema="public") == available()
    rows = empty.execute(
        "SELECT version, name, checksum, applied_by, applied_at IS NOT NULL FROM outbox_migrations"
    ).fetchall()
    user = one(empty, "SELECT session_user")
    assert rows == [(m.version, m.name, m.checksum, user, True) for m in available()]


def test_a_second_migrate_finds_nothing_to_do(empty: psycopg.Connection) -> None:
    migrate.apply(empty, schema="public")
    assert migrate.apply(empty, schema="public") == []
    assert migrate.pending(empty, schema="public") == []


def test_only_the_new_migration_of_a_new_release_is_applied(
    empty: psycopg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    migrate.apply(empty, schema="app")
    more = extend(monkeypatch, "CREATE TABLE extra (x integer);")
    assert migrate.pending(empty, schema="app") == [more]
    assert migrate.apply(empty, schema="app") == [more]
    assert one(empty, "SELECT 'app.extra'::regclass::text") == "app.extra"


def test_a_missing_schema_is_created(empty: psycopg.Connection) -> None:
    migrate.apply(empty, schema="Mixed_Case")
    assert one(empty, 'SELECT count(*) FROM "Mixed_Case".outbox') == 0


def test_a_failing_migration_leaves_nothing_and_says_which_file(
    empty: psycopg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    more = extend(monkeypatch, "CREATE TABLE extra (x integer); SELECT 1/0;")
    with pytest.raises(MigrationError, match=f"{more.title}.sql failed and nothing was changed"):
        migrate.apply(empty, schema="app")
    assert relations(empty) == 0
    assert one(empty, "SELECT count(*) FROM pg_namespace WHERE nspname = 'app'") == 0
    monkeypatch.undo()
    assert migrate.apply(empty, schema="app") == available()


def test_tables_that_were_made_without_the_bookkeeping_are_not_touched(
    empty: psycopg.Connection,
) -> None:
    empty.execute("CREATE TABLE outbox (x integer)")
    with pytest.raises(MigrationError, match="outbox_migrations does not list this file"):
        migrate.apply(empty, schema="public")
    assert relations(empty) == 1


def test_an_edited_migration_is_refused_by_migrate_and_by_its_check(
    conn: psycopg.Connection,
) -> None:
    conn.execute("UPDATE outbox_migrations SET checksum = 'abc' WHERE version = 1")
    for refuses in (migrate.apply, migrate.pending):
        with pytest.raises(MigrationError, match=r"0001_outbox.sql is not the"):
            refuses(conn, schema="public")


def test_a_newer_database_is_refused_by_migrate_and_by_its_check(conn: psycopg.Connection) -> None:
    conn.execute("INSERT INTO outbox_migrations VALUES (99, 'later', 'abc')")
    for refuses in (migrate.apply, migrate.pending):
        with pytest.raises(MigrationError, match=r"gaps|version 99, newer than"):
            refuses(conn, schema="public")


def test_a_transaction_of_the_caller_is_not_migrated_in(empty_dsn: str) -> None:
    with psycopg.connect(empty_dsn) as conn:
        conn.execute("SELECT 1")
        with pytest.raises(MigrationError, match="commit first"):
            migrate.apply(conn, schema="public")


def test_the_callers_settings_are_as_before(empty: psycopg.Connection) -> None:
    names = ("search_path", "lock_timeout", "statement_timeout", "default_transaction_isolation")
    before = [one(empty, "SELECT current_setting(%s)", name) for name in names]
    migrate.apply(empty, schema="app")
    assert [one(empty, "SELECT current_setting(%s)", name) for name in names] == before


def test_unhelpful_defaults_of_the_role_do_not_matter(empty_dsn: str) -> None:
    options = " ".join(
        f"-c {name}"
        for name in (
            "default_transaction_isolation=serializable",
            "default_transaction_read_only=on",
            "client_encoding=LATIN1",
        )
    )
    with psycopg.connect(empty_dsn, options=options) as conn:
        assert migrate.apply(conn, schema="public") == available()


def test_a_table_in_use_makes_the_migration_give_up_instead_of_queueing(
    dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    extend(monkeypatch, "ALTER TABLE outbox ADD COLUMN extra integer;")
    monkeypatch.setattr(
        migrate, "_TAKE_TURN", migrate._TAKE_TURN.replace("lock_timeout = '5s'", "lock_timeout = 1")
    )
    with psycopg.connect(dsn) as busy, psycopg.connect(dsn, autocommit=True) as conn:
        busy.execute("SELECT FROM outbox")
        with pytest.raises(MigrationError, match=r"nothing was changed: a table was in use"):
            migrate.apply(conn, schema="public")


def test_triggers_and_functions_work_whatever_the_callers_search_path_is(
    empty: psycopg.Connection,
) -> None:
    migrate.apply(empty, schema="app")
    empty.execute("SET search_path = pg_catalog")
    empty.execute("UPDATE app.outbox_wakeup SET wanted = true")
    empty.execute("LISTEN outbox")
    keyed = one(
        empty,
        """SELECT app.outbox_enqueue('order', '1', 'paid', '{}', ordering_key => 'k',
                                     dedup_key => 'd', delay => '0')""",
    )
    assert one(empty, "SELECT message_id FROM app.outbox") == keyed
    assert one(empty, "SELECT app.outbox_stats() -> 'destinations' -> 'default' -> 'ready'") == 1
    assert [n.payload for n in empty.notifies(timeout=5, stop_after=1)] == ["default"]


def test_a_temporary_table_of_the_caller_never_stands_in_for_the_outbox(
    empty: psycopg.Connection,
) -> None:
    migrate.apply(empty, schema="app")
    empty.execute("CREATE TEMPORARY TABLE outbox (LIKE app.outbox INCLUDING ALL)")
    empty.execute("SELECT app.outbox_enqueue('order', '1', 'paid', '{}')")
    assert one(empty, "SELECT count(*) FROM app.outbox") == 1


def test_two_schemas_of_one_database_do_not_mix(empty: psycopg.Connection) -> None:
    migrate.apply(empty, schema="blue")
    migrate.apply(empty, schema="green")
    empty.execute("SET search_path = green")
    empty.execute("SELECT blue.outbox_enqueue('order', '1', 'paid', '{}', ordering_key => 'k')")
    empty.execute(sql.SQL(ROW).format(sql.Identifier("blue", "outbox")), ["t"])
    assert one(empty, "SELECT count(*) FROM blue.outbox") == 2
    assert one(empty, "SELECT count(*) FROM green.outbox") == 0
    assert one(empty, "SELECT green.outbox_stats() -> 'destinations'") == {}


def test_the_printed_script_migrates_and_the_check_agrees(empty: psycopg.Connection) -> None:
    empty.execute(migrate.script("app").encode())
    assert migrate.pending(empty, schema="app") == []
    assert migrate.apply(empty, schema="app") == []


def test_the_printed_script_makes_the_same_schema_as_the_runner(
    empty: psycopg.Connection, conn: psycopg.Connection
) -> None:
    empty.execute(migrate.script("public").encode())
    sources = """
        SELECT string_agg(pg_get_functiondef(oid), '' ORDER BY proname)
          FROM pg_proc WHERE pronamespace = 'public'::regnamespace
    """
    assert one(empty, sources) == one(conn, sources)


def test_the_script_for_a_database_that_has_the_first_version_runs_on_it(
    empty: psycopg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    migrate.apply(empty, schema="app")
    more = extend(monkeypatch, "CREATE TABLE extra (x integer);\n")
    empty.execute(migrate.script("app", after=more.version - 1).encode())
    assert migrate.pending(empty, schema="app") == []


def test_the_script_works_inside_another_tools_transaction(empty_dsn: str) -> None:
    bare = re.sub(r"^(BEGIN|COMMIT);$", "", migrate.script("app"), flags=re.MULTILINE)
    with psycopg.connect(empty_dsn) as conn:
        conn.execute("SELECT 1")
        conn.execute(bare.encode())
        conn.rollback()
        assert relations(conn) == 0
        conn.execute(bare.encode())
        conn.commit()
        assert migrate.pending(conn, schema="app") == []


def test_a_role_that_may_only_read_can_check_but_not_migrate(dsn: str) -> None:
    with (
        login_role(dsn, "SELECT ON outbox_migrations") as role,
        psycopg.connect(role.dsn) as reader,
    ):
        assert migrate.pending(reader, schema="public") == []
        with pytest.raises(MigrationError, match=r"this role may not migrate schema"):
            migrate.apply(reader, schema="fresh")


def test_a_role_that_may_not_read_the_version_is_told_which_grant_is_missing(dsn: str) -> None:
    with (
        login_role(dsn) as role,
        psycopg.connect(role.dsn) as reader,
        pytest.raises(MigrationError, match=r"GRANT SELECT ON public.outbox_migrations"),
    ):
        migrate.pending(reader, schema="public")


def test_a_role_that_may_not_create_schemas_migrates_the_one_that_it_was_given(
    empty_dsn: str, empty: psycopg.Connection
) -> None:
    with login_role(empty_dsn) as role, psycopg.connect(role.dsn) as conn:
        empty.execute(f"CREATE SCHEMA app AUTHORIZATION {role.name}".encode())
        assert migrate.apply(conn, schema="app") == available()


async def test_a_worker_starts_on_a_migrated_schema_only(dsn: str) -> None:
    async with await psycopg.AsyncConnection.connect(dsn, autocommit=True) as aconn:
        await migrate.verify(aconn, schema="public")
        with pytest.raises(MigrationError, match=r"no outbox in schema .app.*pgoutbox migrate"):
            await migrate.verify(aconn, schema="app")
        await aconn.execute("CREATE SCHEMA app")
        with pytest.raises(MigrationError, match=r"no outbox in schema .app."):
            await migrate.verify(aconn, schema="app")


async def test_a_worker_runs_on_a_newer_schema_and_not_on_an_older_one(
    dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with await psycopg.AsyncConnection.connect(dsn) as aconn:
        await aconn.execute("INSERT INTO outbox_migrations VALUES (99, 'later', 'abc')")
        await aconn.commit()
        await migrate.verify(aconn, schema="public")
        await aconn.execute("DELETE FROM outbox_migrations WHERE version = 99")
        await aconn.commit()
        extend(monkeypatch, "SELECT 1;")
        with pytest.raises(MigrationError, match="older than the version"):
            await migrate.verify(aconn, schema="public")


async def test_the_workers_check_does_not_break_the_callers_transaction(empty_dsn: str) -> None:
    async with await psycopg.AsyncConnection.connect(empty_dsn) as aconn:
        await aconn.execute("CREATE TABLE mine (x integer)")
        with pytest.raises(MigrationError):
            await migrate.verify(aconn, schema="public")
        await aconn.execute("SELECT FROM mine")


def test_a_database_that_is_not_utf8_is_refused(server_dsn: str) -> None:
    name = f"pgoutbox_latin_{uuid.uuid4().hex[:8]}"
    with psycopg.connect(server_dsn, autocommit=True) as admin:
        admin.execute(
            sql.SQL("CREATE DATABASE {} TEMPLATE template0 ENCODING 'SQL_ASCII' LOCALE 'C'").format(
                sql.Identifier(name)
            )
        )
        try:
            with (
                psycopg.connect(make_conninfo(server_dsn, dbname=name)) as conn,
                pytest.raises(MigrationError, match="SQL_ASCII"),
            ):
                migrate.apply(conn, schema="public")
        finally:
            admin.execute(sql.SQL("DROP DATABASE {}").format(sql.Identifier(name)))


def test_a_plain_insert_in_another_schema_needs_no_search_path(empty: psycopg.Connection) -> None:
    migrate.apply(empty, schema="app")
    with pytest.raises(errors.UndefinedTable):
        empty.execute(sql.SQL(ROW).format(sql.Identifier("outbox")), ["t"])
    empty.execute(sql.SQL(ROW).format(sql.Identifier("app", "outbox")), ["t"])
    assert one(empty, "SELECT count(*) FROM app.outbox") == 1
