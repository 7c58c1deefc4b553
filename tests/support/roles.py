"""Login roles of one test, gone afterwards together with what they were granted."""

from __future__ import annotations

import uuid
from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple

import psycopg
from psycopg import sql
from psycopg.conninfo import make_conninfo

if TYPE_CHECKING:
    from collections.abc import Iterator


class Role(NamedTuple):
    """A role that may do nothing yet."""

    name: str
    dsn: str


@contextmanager
def login_role(dsn: str, *grants: str) -> Iterator[Role]:
    """A role with the ``grants``, as in ``"INSERT ON outbox"``, and the DSN to log in with it."""
    name = f"pgoutbox_role_{uuid.uuid4().hex[:8]}"
    with psycopg.connect(dsn, autocommit=True) as admin:
        admin.execute(f"CREATE ROLE {name} LOGIN PASSWORD 'x'".encode())
        try:
            for grant in grants:
                admin.execute(f"GRANT {grant} TO {name}".encode())
            yield Role(name, make_conninfo(dsn, user=name, password="x"))
        finally:
            for clean_up in ("DROP OWNED BY {} CASCADE", "DROP ROLE {}"):
                admin.execute(sql.SQL(clean_up).format(sql.Identifier(name)))
