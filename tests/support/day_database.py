"""One of the databases of a day: the real one, behind a door, with an answer that is made up."""

from __future__ import annotations

import json
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from tests.support.day_world import Fleet, answer
from tests.support.door import Door

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

# nextval counts even those who are cancelled afterwards, and needs no commit.
MADE_UP = """
CREATE TABLE day_answer (value jsonb NOT NULL);
CREATE SEQUENCE day_looks;
DROP FUNCTION outbox_stats(integer);
CREATE FUNCTION outbox_stats(cap integer DEFAULT 10000) RETURNS jsonb
LANGUAGE plpgsql SECURITY DEFINER SET search_path = public AS $$
BEGIN
  PERFORM nextval('day_looks');
  RETURN (SELECT value FROM day_answer);
END $$;
REVOKE EXECUTE ON FUNCTION outbox_stats(integer) FROM PUBLIC;
INSERT INTO day_answer VALUES ('{}');
"""
OURS = "application_name = 'pgoutbox-operator' AND datname = current_database()"


class DayDatabase:
    """``down_since`` tells since when nobody can look at it."""

    def __init__(self, name: str, conn: psycopg.AsyncConnection[Any], door: Door) -> None:
        self.name = name
        self.secret = f"outbox-{name}"
        self.door = door
        self.fleets: list[Fleet] = []
        self.roles: list[str] = []
        self.role = 0
        self.down_since: float | None = None
        self.locked = False
        self._conn = conn

    @property
    def dsn(self) -> str:
        """For the operator, as the role that is used now."""
        return make_conninfo(
            host="127.0.0.1",
            port=self.door.port,
            dbname=self._conn.info.dbname,
            user=self.roles[self.role],
            password="x",
            sslmode="disable",
        )

    async def do(self, statement: str) -> list[tuple[Any, ...]]:
        """As the owner."""
        cursor = await self._conn.execute(statement.encode())
        return await cursor.fetchall() if cursor.description else []

    async def step(self, now: float, seconds: float) -> None:
        """Let messages arrive and be delivered, and tell of it."""
        for fleet in self.fleets:
            fleet.step(now, seconds)
        if not self.locked:
            told = json.dumps(answer(self.fleets, now))
            await self._conn.execute("UPDATE day_answer SET value = %s", [told])

    async def looks(self) -> int:
        """How often anybody has asked."""
        [(last, called)] = await self.do("SELECT last_value, is_called FROM day_looks")
        return int(last) if called else 0

    async def connections(self) -> int:
        """Of the operator."""
        [(count,)] = await self.do(f"SELECT count(*) FROM pg_stat_activity WHERE {OURS}")  # noqa: S608 - the text above
        return int(count)

    async def terminate(self) -> None:
        """End the operator's sessions."""
        await self.do(f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE {OURS}")  # noqa: S608 - the text above


@asynccontextmanager
async def day_database(name: str, dsn: str) -> AsyncIterator[DayDatabase]:
    """In a database that is migrated, and the test's own."""
    given = conninfo_to_dict(dsn)
    target = str(given.get("host", "")), int(given.get("port") or 5432)
    async with await psycopg.AsyncConnection.connect(dsn, autocommit=True) as conn:
        await conn.execute(MADE_UP.encode())
        async with Door(target) as door:
            made = DayDatabase(name, conn, door)
            made.roles = [f"{conn.info.dbname}_{number}" for number in (1, 2)]
            for role in made.roles:
                await made.do(f"CREATE ROLE {role} LOGIN PASSWORD 'x'")
                await made.do(f"GRANT EXECUTE ON FUNCTION outbox_stats(integer) TO {role}")
            try:
                yield made
            finally:
                for role in made.roles:
                    await made.do(f"DROP OWNED BY {role}")
                    await made.do(f"DROP ROLE {role}")
