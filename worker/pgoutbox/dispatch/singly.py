"""When a statement over expired leases fails for one of its rows: the rows one at a time.

Each is tried with all the others held back. What fails is left alone for a minute, so that the
next looks take the others together again.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, NamedTuple

import psycopg

from pgoutbox.dispatch.arrays import bigints
from pgoutbox.dispatch.aside import Aside
from pgoutbox.dispatch.careful import is_about_rows
from pgoutbox.events import DatabaseFailed

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable
    from datetime import timedelta

    from pgoutbox.database.pool import Database
    from pgoutbox.events import Event

# Index outbox_leased. All that the statement that failed may have met, which is more than is tried.
EXPIRED = b"""
SELECT late.*
  FROM unnest(%(destinations)s::text[]) AS w (destination)
 CROSS JOIN LATERAL (
    SELECT o.id, o.destination, o.ordering_key IS NOT NULL, o.attempts
      FROM outbox AS o
     WHERE o.destination = w.destination
       AND o.lease_until < now()
       AND o.lease_until > now() - %(since)s
       AND o.status = 'processing'
       AND o.id <> ALL (%(held)s::bigint[])
     ORDER BY o.lease_until
     LIMIT 5000) AS late
"""

MAX_TRIES = 50
TRY_SECONDS = 1.0


class Expired(NamedTuple):
    """A message whose lease expired."""

    id: int
    destination: str
    ordered: bool
    attempts: int


class Singly:
    """Remembers which rows fail."""

    def __init__(
        self,
        db: Database,
        doing: str,
        held: Callable[[], Iterable[int]],
        emit: Callable[[Event], None],
    ) -> None:
        self._db = db
        self._doing = doing
        self._own = held
        self._emit = emit
        self._aside = Aside[int]()

    def held(self) -> list[int]:
        """What is this worker's own, and what is to be left alone: parameter of the statements."""
        return [*self._own(), *self._aside.at(time.monotonic())]

    async def each(
        self,
        destinations: Iterable[str],
        since: timedelta,
        wanted: Callable[[Expired], bool],
        take: Callable[[Expired, list[int]], Awaitable[object]],
    ) -> bool:
        """Call ``take`` with each message that is ``wanted``, and with all that is to be held back.

        False: there are more than were tried. Raises what says nothing about rows.
        """
        rows = await self._db.fetch(
            EXPIRED,
            {"destinations": list(destinations), "since": since, "held": bigints(self.held())},
        )
        found = [Expired(*each) for each in rows]
        until = time.monotonic() + TRY_SECONDS
        tries = [one for one in found if wanted(one)]
        for number, one in enumerate(tries):
            if number >= MAX_TRIES or time.monotonic() >= until:
                return False
            if wanted(one):
                others = [other.id for other in found if other is not one]
                await self._try(one, [*self.held(), *others], take)
        return True

    async def _try(
        self,
        one: Expired,
        others: list[int],
        take: Callable[[Expired, list[int]], Awaitable[object]],
    ) -> None:
        try:
            await take(one, others)
        except psycopg.Error as error:
            if not is_about_rows(error):
                raise
            self._aside.put(one.id, time.monotonic())
            why = f"id {one.id}, which is left alone for a minute: {error}"
            self._emit(DatabaseFailed.because(self._doing, RuntimeError(why)))
