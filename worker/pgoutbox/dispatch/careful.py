"""When a claim fails for something in the rows that it met: find a way round them.

One statement claims for all destinations, so a single row that cannot be claimed, for its payload
or for what a trigger thinks of it, would otherwise stop the whole worker.
"""

from __future__ import annotations

import time
from collections import defaultdict
from typing import TYPE_CHECKING

import psycopg

from pgoutbox.database.pool import DATABASE_ERRORS
from pgoutbox.dispatch.arrays import bigints
from pgoutbox.dispatch.aside import Aside
from pgoutbox.dispatch.claim import ClaimedBatch, claim
from pgoutbox.dispatch.finalize import clean
from pgoutbox.dispatch.scan import FRONT
from pgoutbox.events import DatabaseFailed

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pgoutbox.database.pool import Database
    from pgoutbox.dispatch.lanes import Asked
    from pgoutbox.dispatch.scan import Start
    from pgoutbox.events import Event

# Not dead: the fault may be the trigger's and not the message's. No attempt is spent on what no
# publisher has seen, and the oldest pending age goes on counting. The same index as the claim.
POSTPONE = b"""
UPDATE outbox AS o
   SET available_at = now() + interval '1 minute', last_error = %(error)s
 WHERE o.id = ANY (ARRAY (
    SELECT p.id
      FROM outbox AS p
     WHERE p.destination = %(destination)s
       AND p.status = 'pending'
       AND p.ordering_key IS NULL
       AND p.available_at <= now()
       AND p.id <> ALL (%(held)s::bigint[])
     ORDER BY p.available_at, p.id
     LIMIT 1
       FOR UPDATE SKIP LOCKED))
RETURNING o.id
"""

# The row that POSTPONE could not update.
FIRST_DUE = b"""
SELECT p.id
  FROM outbox AS p
 WHERE p.destination = %(destination)s
   AND p.status = 'pending'
   AND p.ordering_key IS NULL
   AND p.available_at <= now()
   AND p.id <> ALL (%(held)s::bigint[])
 ORDER BY p.available_at, p.id
 LIMIT 1
   FOR UPDATE SKIP LOCKED
"""

# The head of the first lane behind the cursor, as in CLAIM_RUNS. Looked for without a lock: should
# somebody have locked it, the next one of its lane is not the head.
POSTPONE_HEAD = b"""
WITH head AS MATERIALIZED (
    SELECT o.id, o.ordering_key
      FROM outbox AS o
     WHERE o.destination = %(destination)s
       AND o.ordering_key > %(cursor)s
       AND o.ordering_key IS NOT NULL
       AND o.done_at IS NULL
     ORDER BY o.ordering_key, o.id
     LIMIT 1
), postponed AS (
    UPDATE outbox AS o
       SET available_at = now() + interval '1 minute', last_error = %(error)s
     WHERE o.id = ANY (ARRAY (
        SELECT p.id
          FROM outbox AS p
         WHERE p.id = (SELECT id FROM head)
           AND p.status = 'pending'
           AND p.available_at <= now()
           FOR UPDATE SKIP LOCKED))
)
SELECT id, ordering_key FROM head
"""

# The one that POSTPONE_HEAD could not update.
FIRST_HEAD = b"""
SELECT o.id, o.ordering_key
  FROM outbox AS o
 WHERE o.destination = %(destination)s
   AND o.ordering_key > %(cursor)s
   AND o.ordering_key IS NOT NULL
   AND o.done_at IS NULL
 ORDER BY o.ordering_key, o.id
 LIMIT 1
"""

# Data, integrity, limits of the program, and what triggers raise: not the weather.
ABOUT_ROWS = frozenset({"22", "23", "54", "P0"})


def is_about_rows(error: Exception) -> bool:
    """Whether the statement failed for what it met, rather than for the state of the server."""
    sqlstate = error.sqlstate if isinstance(error, psycopg.Error) else None
    return sqlstate is not None and sqlstate[:2] in ABOUT_ROWS


MAX_TRIES = 50
"""Rows that are put off in one turn, for each destination."""
MAX_ASIDE = 10_000
"""Rows that are left alone at a time: each claim names them all."""
TURN_SECONDS = 0.5
"""How long one turn may go on with that: what it has claimed waits for its end."""


class Careful:
    """Puts off, for a minute, what cannot be claimed; and leaves alone what cannot be put off."""

    def __init__(
        self, db: Database, *, owner: str, lease: float, emit: Callable[[Event], None]
    ) -> None:
        self._db = db
        self._owner = owner
        self._lease = lease
        self._emit = emit
        self._rows = Aside[int]()
        self._lanes: defaultdict[str, Aside[str]] = defaultdict(Aside)
        self._until = 0.0
        self._unfinished: set[str] = set()
        """Destinations with rows in front that are still to be put off."""

    def starts(self, starts: Mapping[str, Start]) -> Mapping[str, Start]:
        """For one claim; from the front where it got stuck there, for a sweep may be far off."""
        stuck = self._unfinished & starts.keys()
        self._unfinished -= stuck
        return {**starts, **dict.fromkeys(stuck, FRONT)}

    def held(self) -> list[int]:
        """Unordered messages that are to be left alone."""
        return self._rows.at(time.monotonic())

    def past(self, asked: Asked) -> Asked:
        """Have it step over the lanes that are to be left alone, as over a hot lane."""
        lanes = dict.fromkeys(self._lanes[asked.destination].at(time.monotonic()), 0)
        if not lanes:
            return asked
        tried = [lane for lane in asked.tried if lane not in lanes]
        return asked._replace(hot={**asked.hot, **lanes}, tried=tried)

    async def claim(self, slots: Mapping[str, int]) -> ClaimedBatch:
        """Destination by destination; where even one message fails, it is put off.

        Raises `DATABASE_ERRORS` only when nothing was claimed before.
        """
        # Where not even nothing can be claimed, it is no row's fault.
        await claim(self._db, owner=self._owner, lease=self._lease, slots=dict.fromkeys(slots, 0))
        brought = ClaimedBatch()
        self._until = time.monotonic() + TURN_SECONDS
        for name, free in slots.items():
            try:
                batch = await self._claim_one(name, free)
            except DATABASE_ERRORS:
                if not brought:
                    raise
                break
            brought += batch
            brought.cut = brought.cut or batch.cut
            brought.last = {**brought.last, **batch.last}
            brought.ordered = [*brought.ordered, *batch.ordered]
        return brought

    async def _claim_one(self, name: str, free: int) -> ClaimedBatch:
        """All that it may, or one, or one behind those that it had to put off."""
        self._unfinished.discard(name)
        batch = await self._try(name, free)
        if isinstance(batch, ClaimedBatch):
            return batch
        self._unfinished.add(name)
        nothing = ClaimedBatch()
        can_postpone = True
        for _ in range(MAX_TRIES):
            batch = await self._try(name, 1)
            if isinstance(batch, ClaimedBatch):
                batch.cut = True
                return batch
            can_postpone = can_postpone and await self._postpone(name, batch)
            nothing.cut = can_postpone or await self._put_aside(name, batch)
            if not nothing.cut or time.monotonic() >= self._until:
                break
        if not nothing.cut:
            self._unfinished.discard(name)
        return nothing

    async def _try(self, name: str, count: int) -> ClaimedBatch | psycopg.Error:
        try:
            return await claim(
                self._db,
                owner=self._owner,
                lease=self._lease,
                slots={name: count},
                held=self.held(),
            )
        except psycopg.Error as error:
            if not is_about_rows(error):
                raise
            return error

    async def _postpone(self, name: str, error: psycopg.Error) -> bool:
        """The first message that is due; False: it cannot be, or there is none any more."""
        values = {"destination": name, "held": bigints(self.held())}
        why = clean(f"it cannot be claimed: {error}")
        try:
            rows = await self._db.fetch(POSTPONE, {**values, "error": why})
        except psycopg.Error as refusal:
            if not is_about_rows(refusal):
                raise
            return False
        for (number,) in rows:
            self._tell(name, number, error)
        return bool(rows)

    async def _put_aside(self, name: str, error: psycopg.Error) -> bool:
        """The first message that is due; False: there is none, or no room for it."""
        held = self.held()
        if len(held) >= MAX_ASIDE:
            return False
        rows = await self._db.fetch(FIRST_DUE, {"destination": name, "held": bigints(held)})
        for (number,) in rows:
            self._rows.put(number, time.monotonic())
            self._tell(name, number, error)
        return bool(rows)

    async def put_off_head(self, asked: Asked, error: Exception) -> str:
        """The head of the first lane behind the cursor. Its key; empty: there is no such lane."""
        try:
            rows = await postpone_head(self._db, asked.destination, asked.cursor, error)
        except psycopg.Error as refusal:
            if not is_about_rows(refusal):
                raise
            where = {"destination": asked.destination, "cursor": asked.cursor}
            rows = await self._db.fetch(FIRST_HEAD, where)
            for _, lane in rows:
                self._lanes[asked.destination].put(lane, time.monotonic())
        for number, lane in rows:
            self._tell(asked.destination, number, error)
            return lane
        return ""

    def _tell(self, name: str, number: int, error: Exception) -> None:
        why = f"id {number}, which is put off for a minute: {error}"
        self._emit(DatabaseFailed.because(f"claim a message of {name}", RuntimeError(why)))


async def postpone_head(
    db: Database, destination: str, cursor: str, error: Exception
) -> list[tuple[int, str]]:
    """Put off, for a minute, the message at the head of the first lane behind ``cursor``.

    Its id and its lane's key; an empty list where there is none.
    """
    why = clean(f"it cannot be claimed: {error}")
    parameters = {"destination": destination, "cursor": cursor, "error": why}
    return await db.fetch(POSTPONE_HEAD, parameters)
