"""Roles on a server that has none yet, made by people who are no superusers."""

from __future__ import annotations

import threading
from contextlib import closing
from typing import TYPE_CHECKING, Any

import psycopg
import pytest
from psycopg import errors
from psycopg.conninfo import make_conninfo

from pgoutbox.database import migrate
from pgoutbox.database.migrations import Migration, available
from pgoutbox.demo.embedded import EmbeddedServer
from pgoutbox.errors import MigrationError
from tests.support.postgres import FAST
from tests.support.waiting import until_waiting

if TYPE_CHECKING:
    from collections.abc import Iterator

# Owners and rights of all that the outbox consists of. Names, since numbers differ.
CATALOGUE = b"""
SELECT c.relkind::text || ' ' || c.relname AS name, pg_get_userbyid(c.relowner)::text,
       ARRAY(SELECT acl::text FROM unnest(c.relacl) AS acl ORDER BY 1),
       ARRAY(SELECT a.attname || ':' || acl::text FROM pg_attribute a, unnest(a.attacl) AS acl
              WHERE a.attrelid = c.oid ORDER BY 1)
  FROM pg_class c WHERE c.relnamespace = 'app'::regnamespace
UNION ALL
SELECT 'function ' || p.oid::regprocedure, pg_get_userbyid(p.proowner)::text,
       ARRAY(SELECT acl::text FROM unnest(p.proacl) AS acl ORDER BY 1), '{}'
  FROM pg_proc p WHERE p.pronamespace = 'app'::regnamespace
UNION ALL
SELECT 'type ' || t.typname, pg_get_userbyid(t.typowner)::text, '{}', '{}'
  FROM pg_type t WHERE t.typnamespace = 'app'::regnamespace AND t.typelem = 0
ORDER BY 1
"""
LATER = """
CREATE TABLE outbox_later (id int PRIMARY KEY);
CREATE FUNCTION outbox_later() RETURNS int LANGUAGE sql RETURN 1;
"""


@pytest.fixture
def server() -> Iterator[str]:
    """Without roles, and with two people who each own a database."""
    embedded = EmbeddedServer(settings=FAST)
    try:
        embedded.start()
        with psycopg.connect(embedded.dsn, autocommit=True) as admin:
            for name in ("ann", "bob"):
                admin.execute(f"CREATE ROLE {name} LOGIN CREATEROLE".encode())
                admin.execute(f"CREATE DATABASE {name} OWNER {name} TEMPLATE template0".encode())
        yield embedded.dsn
    finally:
        embedded.remove()


def as_person(server: str, name: str, *, of: str | None = None) -> closing[psycopg.Connection[Any]]:
    """Connected to their own database, or to another one's."""
    dsn = make_conninfo(server, user=name, dbname=of or name)
    return closing(psycopg.connect(dsn, autocommit=True))


def test_who_may_create_roles_migrates_with_them_and_later_without_asking_for_them(
    server: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with as_person(server, "ann") as ann:
        known = migrate.apply(ann, schema="app", roles=True)
        before = ann.execute(CATALOGUE).fetchall()
        later = Migration(len(known) + 1, "later", LATER)
        monkeypatch.setattr(migrate, "available", lambda: [*known, later])
        assert migrate.apply(ann, schema="app") == [later]
        made = ann.execute(CATALOGUE).fetchall()
        assert {owner for _, owner, *_ in made} == {"outbox_owner"}
        assert all(one in made for one in before)
        rights = {name: acl for name, _, acl, _ in made if name.startswith("function ")}
        assert rights["function app.outbox_later()"] == ["outbox_owner=X/outbox_owner"]
        # Granted to some, and to PUBLIC nothing.
        assert not [name for name, acl in rights.items() if not acl or acl[0].startswith("=")]
        assert migrate.apply(ann, schema="app") == []
        assert ann.execute(CATALOGUE).fetchall() == made


def test_the_printed_script_leaves_the_same_owners_and_rights(server: str) -> None:
    with as_person(server, "ann") as ann:
        migrate.apply(ann, schema="app", roles=True)
        applied = ann.execute(CATALOGUE).fetchall()
        ann.execute("DROP SCHEMA app CASCADE")
        ann.execute(migrate.script("app", roles=True).encode())
        assert ann.execute(CATALOGUE).fetchall() == applied


def test_a_second_outbox_of_the_database_has_the_same_roles_and_rights_of_its_own(
    server: str,
) -> None:
    with as_person(server, "ann") as ann:
        migrate.apply(ann, schema="app", roles=True)
        made = ann.execute(CATALOGUE).fetchall()
        migrate.apply(ann, schema="other")
        ann.execute("CREATE ROLE shop")
        ann.execute("GRANT shop TO ann")
        ann.execute("GRANT outbox_producer TO shop")
        ann.execute("SET ROLE shop")
        ann.execute("SELECT app.outbox_enqueue('t', 'i', 'e', '1')")
        with pytest.raises(errors.InsufficientPrivilege):
            ann.execute("INSERT INTO other.outbox (destination) VALUES ('mail')")
        ann.execute("RESET ROLE")
        migrate.apply(ann, schema="other", roles=True)
        ann.execute("SET ROLE shop")
        ann.execute("SELECT other.outbox_enqueue('t', 'i', 'e', '1')")
        ann.execute("RESET ROLE")
        assert ann.execute(CATALOGUE).fetchall() == made


def test_another_person_needs_to_be_a_member_of_the_owner_and_is_told(server: str) -> None:
    with as_person(server, "ann") as ann, as_person(server, "bob") as bob:
        migrate.apply(ann, schema="app", roles=True)
        if bob.info.server_version >= 160000:
            # Until then whoever may create roles may also join any.
            with pytest.raises(MigrationError, match="GRANT outbox_owner TO bob"):
                migrate.apply(bob, schema="app", roles=True)
            assert bob.execute("SELECT to_regclass('app.outbox')").fetchone() == (None,)
        ann.execute("GRANT outbox_owner TO bob")
        assert migrate.apply(bob, schema="app", roles=True) == available()


def test_a_member_of_the_owner_migrates_what_somebody_else_made_and_others_are_told(
    server: str,
) -> None:
    with as_person(server, "ann") as ann, as_person(server, "bob", of="ann") as bob:
        migrate.apply(ann, schema="app", roles=True)
        made = ann.execute(CATALOGUE).fetchall()
        with pytest.raises(MigrationError, match="be a member of the role that owns them"):
            migrate.apply(bob, schema="app")
        ann.execute("GRANT USAGE ON SCHEMA app TO bob")
        with pytest.raises(MigrationError, match="outbox_owner owns the tables one of its members"):
            migrate.apply(bob, schema="app")
        ann.execute("REVOKE USAGE ON SCHEMA app FROM bob")
        ann.execute("GRANT outbox_owner TO bob")
        assert migrate.apply(bob, schema="app") == []
        assert ann.execute(CATALOGUE).fetchall() == made


def test_two_databases_of_a_new_server_may_make_the_roles_at_once(server: str) -> None:
    failures: list[Exception] = []

    def make(conn: psycopg.Connection[Any]) -> None:
        try:
            migrate.apply(conn, schema="app", roles=True)
        except Exception as error:  # noqa: BLE001 - the test tells
            failures.append(error)

    admin = make_conninfo(server, user="postgres")
    with closing(psycopg.connect(admin)) as first, as_person(admin, "postgres", of="bob") as other:
        # A role that is not committed yet: the other one waits for it, then finds it.
        first.execute("CREATE ROLE outbox_owner NOLOGIN")
        thread = threading.Thread(target=make, args=(other,), daemon=True)
        thread.start()
        with psycopg.connect(admin, autocommit=True) as observer:
            until_waiting(observer, other.info.backend_pid, on="transactionid")
        first.commit()
        thread.join(timeout=30)
        assert not thread.is_alive()
    assert failures == []


def test_nobody_may_create_beside_the_functions_that_work_as_the_owner(server: str) -> None:
    admin = make_conninfo(server, user="postgres", dbname="ann")
    with psycopg.connect(admin, autocommit=True) as conn, as_person(server, "bob", of="ann") as bob:
        # As every database of PostgreSQL 14 has it.
        conn.execute("GRANT CREATE ON SCHEMA public TO PUBLIC")
        bob.execute("CREATE TABLE public.mine ()")
        migrate.apply(conn, schema="public", roles=True)
        with pytest.raises(errors.InsufficientPrivilege):
            bob.execute("CREATE TABLE public.more ()")
        # The owner has the right by itself, and not as one of everybody.
        assert conn.execute("SELECT outbox_archive_prepare()").fetchone() == (4,)
