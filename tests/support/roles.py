"""Login roles of one test, gone afterwards together with what they were granted."""

from __future__ import annotations

import os
import uuid
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

import psycopg
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict, make_conninfo

if TYPE_CHECKING:
    from collections.abc import Iterator


class Role(NamedTuple):
    """A role that may do nothing yet."""

    name: str
    dsn: str


DATABASE = "pgoutbox_test_"
"""How the names of databases with the roles begin."""
ROLE = "pgoutbox_role_"
WORKER = "pgoutbox_test_worker"
PASSWORD = "x"  # noqa: S105 - of a throw-away role


def make_worker(conn: psycopg.Connection[Any]) -> None:
    """The login that workers of all tests use: a member of outbox_dispatcher, and nothing else."""
    # Another run on the same server may be at it as well.
    conn.execute(
        f"""
        DO $$ BEGIN
            CREATE ROLE {WORKER} LOGIN PASSWORD '{PASSWORD}';
        EXCEPTION WHEN duplicate_object OR unique_violation THEN
            NULL;
        END $$
    """.encode()
    )
    conn.execute(f"GRANT outbox_dispatcher TO {WORKER}".encode())


def as_worker(dsn: str) -> str:
    """The same database, for a worker; as it is where it names another role, or has no roles."""
    given = conninfo_to_dict(dsn)
    migrated = str(given.get("dbname")).startswith(DATABASE)
    if not migrated or str(given.get("user")).startswith(ROLE):
        return dsn
    return make_conninfo(dsn, user=WORKER, password=PASSWORD)


POOLER: dict[str, Any] = {"pooler": "transaction"} if os.environ.get("PGOUTBOX_TEST_POOLER") else {}
"""What a worker finds out when it starts, for tests that begin after that."""


def through_pooler(dsn: str) -> str:
    """The same database through the pooler that PGOUTBOX_TEST_POOLER names, as ``host:port``."""
    host, _, port = os.environ.get("PGOUTBOX_TEST_POOLER", "").rpartition(":")
    return make_conninfo(dsn, host=host, port=port) if host else dsn


@contextmanager
def login_role(dsn: str, *grants: str) -> Iterator[Role]:
    """A role with the ``grants``, as in ``"INSERT ON outbox"``, and the DSN to log in with it."""
    name = f"{ROLE}{uuid.uuid4().hex[:8]}"
    with psycopg.connect(dsn, autocommit=True) as admin:
        admin.execute(f"CREATE ROLE {name} LOGIN PASSWORD 'x'".encode())
        try:
            for grant in grants:
                admin.execute(f"GRANT {grant} TO {name}".encode())
            yield Role(name, make_conninfo(dsn, user=name, password="x"))
        finally:
            for clean_up in ("DROP OWNED BY {} CASCADE", "DROP ROLE {}"):
                admin.execute(sql.SQL(clean_up).format(sql.Identifier(name)))
