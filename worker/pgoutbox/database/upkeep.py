"""How vacuum keeps up with the table of messages: what PostgreSQL counts anyway."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from psycopg.rows import class_row

if TYPE_CHECKING:
    import psycopg

# The functions of the views pg_stat_*_tables: any role may call them, and unlike those about sizes
# they take no lock, so that a table that somebody locked does not keep them waiting.
UPKEEP = b"""\
SELECT pg_stat_get_live_tuples(c.oid) AS live, pg_stat_get_dead_tuples(c.oid) AS dead,
       extract(epoch FROM greatest(pg_stat_get_last_vacuum_time(c.oid),
                                   pg_stat_get_last_autovacuum_time(c.oid)))::float8 AS vacuumed_at
  FROM pg_class c
  JOIN pg_namespace n ON n.oid = c.relnamespace
 WHERE n.nspname = %s AND c.relname = 'outbox'
"""


BEHIND = 10
"""Rounds of autovacuum by which it may be late, with the settings that the migrations gave."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Upkeep:
    """Row versions of the table of messages, as PostgreSQL estimates."""

    live: int
    dead: int
    """Those that vacuum has yet to remove, and those that it may not remove yet."""
    vacuumed_at: float | None
    """Seconds since the epoch; None where it never was, or since the counters were lost."""

    @property
    def behind(self) -> bool:
        """Whether there are many more dead ones than those that autovacuum waits for."""
        return self.dead > BEHIND * (1000 + 0.01 * self.live)


def read(conn: psycopg.Connection[Any], *, schema: str) -> Upkeep | None:
    """One look at the counters. None where there is no outbox."""
    with conn.cursor(row_factory=class_row(Upkeep)) as cursor:
        return cursor.execute(UPKEEP, [schema]).fetchone()


async def read_async(conn: psycopg.AsyncConnection[Any], *, schema: str) -> Upkeep | None:
    """As `read`."""
    async with conn.cursor(row_factory=class_row(Upkeep)) as cursor:
        await cursor.execute(UPKEEP, [schema])
        return await cursor.fetchone()
