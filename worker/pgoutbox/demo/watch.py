"""What the outbox table says at the moment."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import psycopg

if TYPE_CHECKING:
    from uuid import UUID

    from pgoutbox.demo.place import Place

COUNTS = b"""
SELECT count(*) FILTER (WHERE status = 'pending'), count(*) FILTER (WHERE status = 'processing'),
       count(*) FILTER (WHERE status = 'dead')
  FROM outbox
"""
LEASES = b"SELECT lease_owner, count(*) FROM outbox WHERE status = 'processing' GROUP BY 1"
REGISTERED = b"SELECT owner FROM outbox_workers"
OWNER = b"SELECT lease_owner FROM outbox WHERE message_id = %s"
DEAD = b"SELECT message_id FROM outbox WHERE status = 'dead'"
EFFECTS = b"SELECT message_id, count(*) FROM shipments GROUP BY 1"


class View(NamedTuple):
    """One look at the table."""

    pending: int = 0
    processing: int = 0
    dead: int = 0
    leases: dict[str, int] = {}  # noqa: RUF012 - never changed
    """How many messages each worker holds."""
    registered: frozenset[str] = frozenset()
    """The workers that have a heartbeat."""

    @property
    def undelivered(self) -> int:
        """What is still owed."""
        return self.pending + self.processing


class Watch:
    """A connection that only looks."""

    def __init__(self, conn: psycopg.AsyncConnection[Any]) -> None:
        self._conn = conn

    @classmethod
    async def open(cls, place: Place) -> Watch:
        """Connect."""
        return cls(await psycopg.AsyncConnection.connect(place.conninfo, autocommit=True))

    async def close(self) -> None:
        """Disconnect."""
        await self._conn.close()

    async def look(self) -> View:
        """Count again."""
        counts = await self._fetch(COUNTS)
        leases = await self._fetch(LEASES)
        registered = await self._fetch(REGISTERED)
        pending, processing, dead = counts[0]
        return View(
            pending, processing, dead, dict(leases), frozenset(owner for (owner,) in registered)
        )

    async def owner_of(self, message_id: UUID) -> str | None:
        """Who has the lease of this message."""
        rows = await self._fetch(OWNER, [message_id])
        return rows[0][0] if rows else None

    async def dead(self) -> set[UUID]:
        """The dead letters."""
        return {message_id for (message_id,) in await self._fetch(DEAD)}

    async def effects(self) -> dict[UUID, int]:
        """How many shipments were booked for each message."""
        return dict(await self._fetch(EFFECTS))

    async def _fetch(self, statement: bytes, values: list[Any] | None = None) -> list[Any]:
        cursor = await self._conn.execute(statement, values)
        return await cursor.fetchall()
