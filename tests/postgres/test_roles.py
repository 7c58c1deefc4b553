"""Each role does its work, and is refused everything else."""

from __future__ import annotations

from contextlib import closing
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import psycopg
import pytest
from psycopg import errors, sql
from psycopg.conninfo import make_conninfo

from pgoutbox import inbox
from pgoutbox.database import desk, migrate
from pgoutbox.database.migrations import available
from pgoutbox.errors import MigrationError
from tests.support.outbox_rows import insert
from tests.support.roles import login_role

if TYPE_CHECKING:
    from collections.abc import Iterator

TABLES = (
    "outbox",
    "outbox_workers",
    "outbox_wakeup",
    "outbox_inbox",
    "outbox_audit",
    "outbox_archive",
    "outbox_migrations",
)
ROLES = (
    "outbox_producer",
    "outbox_dispatcher",
    "outbox_operator",
    "outbox_desk",
    "outbox_consumer",
)
MESSAGE = "aggregate_type aggregate_id event_type destination payload body content_type headers"
PRODUCED = {*MESSAGE.split(), "message_id", "ordering_key", "dedup_key", "available_at"}
STATE = {
    *("status", "attempts", "reclaims", "available_at", "pending_since", "lease_owner"),
    *("lease_until", "lease_version", "last_error", "done_at"),
}
DECIDED = STATE - {"lease_owner", "lease_until", "last_error"} | {"ordering_key"}
AUDITED = {"action", "reason", "outbox_id", "message_id", "destination", "details"}
ALL = {"*"}
MAY: dict[str, dict[tuple[str, str], set[str]]] = {
    "outbox_producer": {("INSERT", "outbox"): PRODUCED},
    "outbox_dispatcher": {
        ("SELECT", "outbox"): ALL,
        ("UPDATE", "outbox"): STATE,
        ("DELETE", "outbox"): ALL,
        ("SELECT", "outbox_workers"): ALL,
        ("INSERT", "outbox_workers"): ALL,
        ("UPDATE", "outbox_workers"): ALL,
        ("DELETE", "outbox_workers"): ALL,
        ("SELECT", "outbox_wakeup"): ALL,
        ("UPDATE", "outbox_wakeup"): {"wanted", "changed_at"},
        ("SELECT", "outbox_migrations"): ALL,
        ("INSERT", "outbox_archive"): ALL,
    },
    "outbox_operator": {},
    "outbox_desk": {
        ("SELECT", "outbox"): ALL,
        ("UPDATE", "outbox"): DECIDED,
        ("SELECT", "outbox_audit"): ALL,
        ("INSERT", "outbox_audit"): AUDITED,
        ("SELECT", "outbox_archive"): ALL,
        ("SELECT", "outbox_migrations"): ALL,
    },
    "outbox_consumer": {
        ("SELECT", "outbox_inbox"): ALL,
        ("INSERT", "outbox_inbox"): ALL,
        ("DELETE", "outbox_inbox"): ALL,
        ("UPDATE", "outbox_inbox"): {"received_at"},
    },
}
CALLS = {
    "outbox_enqueue('t', 'i', 'e', '1')": {"outbox_producer"},
    "outbox_message_id('k')": {"outbox_producer", "outbox_desk"},
    "outbox_aggregate_key('a', 'b')": {"outbox_producer"},
    "outbox_stats()": {"outbox_dispatcher", "outbox_operator", "outbox_desk"},
    "outbox_horizon()": {"outbox_dispatcher", "outbox_operator", "outbox_desk"},
    "outbox_discard('{}', 'why')": {"outbox_desk"},
    "outbox_archive_partitions()": {"outbox_dispatcher"},
    "outbox_archive_prepare()": {"outbox_dispatcher"},
    "outbox_archive_expire('100 days')": {"outbox_dispatcher"},
    "nextval('outbox_id_seq')": set(),
    "setval('outbox_id_seq', 1)": set(),
    "nextval('outbox_audit_id_seq')": set(),
    "pg_read_file('PG_VERSION')": set(),
}
OTHERS = (
    "TRUNCATE {table}",
    "ALTER TABLE {table} ADD COLUMN more int",
    "ALTER TABLE {table} DISABLE TRIGGER ALL",
    "DROP TABLE {table}",
    "CREATE INDEX ON {table} ((1))",
    "CREATE TRIGGER t BEFORE INSERT ON {table} FOR EACH ROW EXECUTE FUNCTION outbox_check()",
    "COMMENT ON TABLE {table} IS 'mine'",
)


@pytest.fixture(params=ROLES)
def member(request: pytest.FixtureRequest, dsn: str) -> Iterator[tuple[str, psycopg.Connection]]:
    """A role, and a connection of a login that is its member and nothing else."""
    with (
        login_role(dsn, request.param) as role,
        closing(psycopg.connect(role.dsn, autocommit=True)) as conn,
    ):
        yield request.param, conn


def is_refused(conn: psycopg.Connection[Any], statement: sql.Composed | bytes) -> bool:
    """Whether for want of a right, not for what it would have done."""
    try:
        with conn.transaction():
            conn.execute(statement)
            raise psycopg.Rollback
    except errors.InsufficientPrivilege:
        return True
    except psycopg.Error:
        return False
    return False


def columns(conn: psycopg.Connection[Any], table: str) -> list[str]:
    found = conn.execute(
        "SELECT attname FROM pg_attribute WHERE attrelid = %s::regclass AND attnum > 0"
        " AND NOT attisdropped",
        [table],
    )
    return [name for (name,) in found]


def statement(verb: str, table: str, column: str) -> sql.Composed:
    """One that touches a single column."""
    forms = {
        "SELECT": "SELECT {column} FROM {table}",
        "INSERT": "INSERT INTO {table} ({column}) OVERRIDING SYSTEM VALUE VALUES (NULL)",
        "UPDATE": "UPDATE {table} SET {column} = DEFAULT",
        "DELETE": "DELETE FROM {table}",
    }
    return sql.SQL(forms[verb]).format(table=sql.Identifier(table), column=sql.Identifier(column))


@pytest.mark.parametrize("verb", ["SELECT", "INSERT", "UPDATE", "DELETE"])
def test_it_may_touch_these_columns_and_no_others(
    member: tuple[str, psycopg.Connection], verb: str
) -> None:
    role, conn = member
    wrong = []
    for table in TABLES:
        allowed = MAY[role].get((verb, table), set())
        for column in columns(conn, table):
            refused = is_refused(conn, statement(verb, table, column))
            if refused == (allowed == ALL or column in allowed):
                wrong.append(f"{verb} {table}.{column}: {'refused' if refused else 'done'}")
    assert wrong == []


def test_it_may_call_these_functions_and_no_others(
    member: tuple[str, psycopg.Connection],
) -> None:
    role, conn = member
    called = {call for call in CALLS if not is_refused(conn, f"SELECT {call}".encode())}
    assert called == {call for call, roles in CALLS.items() if role in roles}


def test_it_may_change_nothing_of_the_schema_and_be_nobody_else(
    member: tuple[str, psycopg.Connection],
) -> None:
    role, conn = member
    statements = [each.format(table=table) for each in OTHERS for table in TABLES]
    statements += [
        "CREATE TABLE mine ()",
        "CREATE FUNCTION mine() RETURNS int LANGUAGE sql RETURN 1",
        "CREATE OR REPLACE FUNCTION outbox_check() RETURNS trigger LANGUAGE sql AS ''",
        "ALTER FUNCTION outbox_stats(integer) SECURITY INVOKER",
        "GRANT SELECT ON outbox TO PUBLIC",
        "ALTER DEFAULT PRIVILEGES FOR ROLE outbox_owner GRANT SELECT ON TABLES TO PUBLIC",
        *(f"SET ROLE {other}" for other in ("outbox_owner", *ROLES) if other != role),
    ]
    done = [each for each in statements if not is_refused(conn, each.encode())]
    # GRANT by somebody who has nothing to give is a warning.
    assert set(done) <= {"GRANT SELECT ON outbox TO PUBLIC"}
    assert conn.execute("SELECT has_table_privilege('public', 'outbox', 'SELECT')").fetchone() == (
        False,
    )


def test_nothing_is_left_to_everybody(conn: psycopg.Connection) -> None:
    assert (
        conn.execute("""
            SELECT p.proname FROM pg_proc p
             WHERE p.pronamespace = 'public'::regnamespace AND p.proname LIKE 'outbox%'
               AND has_function_privilege('public', p.oid, 'EXECUTE')
            UNION ALL
            SELECT c.relname FROM pg_class c
             WHERE c.relnamespace = 'public'::regnamespace AND c.relname LIKE 'outbox%'
               AND c.relkind IN ('r', 'p', 'S') AND c.relacl::text LIKE '%{=%'
        """).fetchall()
        == []
    )


def test_every_function_has_a_search_path_of_its_own_or_no_names_to_look_up(
    conn: psycopg.Connection,
) -> None:
    # The bodies of the others were parsed when they were made.
    found = conn.execute("""
        SELECT proname FROM pg_proc
         WHERE pronamespace = 'public'::regnamespace AND proname LIKE 'outbox%'
           AND prosqlbody IS NULL
           AND NOT coalesce(array_to_string(proconfig, ' '), '') LIKE '%search_path=%pg_temp%'
    """).fetchall()
    assert found == []


def test_a_person_of_the_desk_decides_under_their_own_name(
    dsn: str, conn: psycopg.Connection
) -> None:
    dead = {"status": "dead", "pending_since": None, "ordering_key": "k"}
    first, second = insert(conn, **dead), insert(conn, **dead)
    with login_role(dsn, "outbox_desk") as role, closing(psycopg.connect(role.dsn)) as person:
        person.autocommit = True
        assert desk.skip(person, first, "never mind", schema="public").done
        assert desk.requeue(person, second, "mended", schema="public").done
        told = person.execute("SELECT db_user, action FROM outbox_audit ORDER BY id").fetchall()
        assert told == [(role.name, "skip"), (role.name, "requeue")]


def test_a_consumer_keeps_receipts(dsn: str) -> None:
    number = "0190f5c2-7c1e-7e3c-8a5d-2f1b6c9d8e7a"
    fresh = []
    with login_role(dsn, "outbox_consumer") as role, psycopg.connect(role.dsn) as consumer:
        for _ in range(2):
            with inbox.first_time(consumer, "billing", number) as first:
                fresh.append(first)
        assert inbox.prune_receipts(consumer, timedelta(days=1)) == 0
    assert fresh == [True, False]


@pytest.fixture
def deployer(empty_dsn: str) -> Iterator[str]:
    """The DSN of somebody who may migrate, and is no superuser."""
    with login_role(empty_dsn, "outbox_owner") as role:
        with psycopg.connect(empty_dsn, autocommit=True) as admin:
            admin.execute(f"CREATE SCHEMA app AUTHORIZATION {role.name}".encode())
        yield role.dsn


def owners(dsn: str) -> set[str]:
    """Of all that is in the schema."""
    with psycopg.connect(dsn) as conn:
        found = conn.execute("""
            SELECT pg_get_userbyid(relowner) FROM pg_class
             WHERE relnamespace = 'app'::regnamespace AND relkind <> 'c'
            UNION
            SELECT pg_get_userbyid(proowner) FROM pg_proc WHERE pronamespace = 'app'::regnamespace
        """)
        return {name for (name,) in found}


@pytest.mark.usefixtures("template")
def test_what_a_later_migration_makes_is_the_owners_and_nobody_elses(
    deployer: str, empty_dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    everything = available()
    monkeypatch.setattr(migrate, "available", lambda: everything[:3])
    with psycopg.connect(deployer, autocommit=True) as conn:
        migrate.apply(conn, schema="app")
        monkeypatch.setattr(migrate, "available", lambda: everything)
        migrate.apply(conn, schema="app", roles=True)
        assert migrate.apply(conn, schema="app", roles=True) == []
    assert owners(empty_dsn) == {"outbox_owner"}
    with psycopg.connect(deployer, autocommit=True) as conn:
        # As the next migration's functions would be.
        conn.execute("SET ROLE outbox_owner")
        conn.execute("CREATE FUNCTION app.later() RETURNS int LANGUAGE sql RETURN 1")
        assert conn.execute(
            "SELECT has_function_privilege('public', 'app.later()', 'EXECUTE')"
        ).fetchone() == (False,)


@pytest.mark.usefixtures("template")
def test_the_printed_script_does_the_same(deployer: str, empty_dsn: str) -> None:
    with psycopg.connect(deployer, autocommit=True) as conn:
        conn.execute(migrate.script("app", roles=True).encode())
        assert migrate.apply(conn, schema="app") == []
    assert owners(empty_dsn) == {"outbox_owner"}


@pytest.mark.usefixtures("template")
def test_whoever_is_no_member_of_the_owner_is_told_what_to_ask_for(empty_dsn: str) -> None:
    with login_role(empty_dsn) as role:
        with psycopg.connect(empty_dsn, autocommit=True) as admin:
            admin.execute(f"CREATE SCHEMA app AUTHORIZATION {role.name}".encode())
        with (
            psycopg.connect(make_conninfo(role.dsn), autocommit=True) as conn,
            pytest.raises(MigrationError, match=f"GRANT outbox_owner TO {role.name}"),
        ):
            migrate.apply(conn, schema="app", roles=True)
