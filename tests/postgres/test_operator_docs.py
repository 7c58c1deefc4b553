"""The login that docs/operator.md makes is enough for what the operator asks, and for no more."""

from __future__ import annotations

import uuid
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import psycopg
import pytest
from psycopg import errors
from psycopg.conninfo import make_conninfo

from tests.postgres.test_operator_database import PLACE, watched
from tests.support.outbox_rows import fill
from tests.unit.operator.test_docs import blocks

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@contextmanager
def documented(conn: psycopg.Connection[Any], dsn: str) -> Iterator[str]:
    """The DSN of the login, under a name of its own: logins belong to the whole server."""
    name = f"shop_scaler_{uuid.uuid4().hex[:8]}"
    [block] = blocks("sql")
    try:
        conn.execute(block.replace("shop_scaler", name).encode())
        conn.execute(f"ALTER ROLE {name} PASSWORD 'x'".encode())
        yield make_conninfo(dsn, user=name, password="x")
    finally:
        conn.execute(f"DROP ROLE IF EXISTS {name}".encode())


async def test_it_may_look_as_the_operator_does(
    conn: psycopg.Connection[Any], dsn: str, tmp_path: Path
) -> None:
    fill(conn, 3)
    with documented(conn, dsn) as login:
        async with watched(login, tmp_path, PLACE) as seen:
            await seen.tick()
            look = seen.database.look
    assert look is not None
    assert look.statistics is not None
    assert [each.ready for each in look.statistics.destinations.values()] == [3]
    assert look.horizon is not None
    assert look.upkeep is not None


def test_it_may_see_no_message(conn: psycopg.Connection[Any], dsn: str) -> None:
    with (
        documented(conn, dsn) as login,
        psycopg.connect(login, autocommit=True) as session,
        pytest.raises(errors.InsufficientPrivilege),
    ):
        session.execute("SELECT FROM outbox")
