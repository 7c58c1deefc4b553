"""Keeps one finalize in flight: each takes what has gathered while the one before it ran."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

from pgoutbox.database.pool import DATABASE_ERRORS
from pgoutbox.dispatch.backoff import Backoff
from pgoutbox.dispatch.finalize import finalize
from pgoutbox.events import DatabaseFailed, Finalized

if TYPE_CHECKING:
    from collections.abc import Callable

    from pgoutbox.database.pool import Database
    from pgoutbox.dispatch.finalize import Written
    from pgoutbox.dispatch.flight import InFlight
    from pgoutbox.events import Event, Settled

MAX_BATCH = 2000


class Finalizer:
    """Writes transitions until each is written, refused, or this worker's time is up."""

    def __init__(self, db: Database, in_flight: InFlight, emit: Callable[[Event], None]) -> None:
        self._db = db
        self._in_flight = in_flight
        self._emit = emit
        self._gathered: list[Settled] = []
        self._work = asyncio.Event()
        self._empty = asyncio.Event()
        self._empty.set()

    def add(self, settled: Settled) -> None:
        """Queue one transition."""
        self._gathered.append(settled)
        self._work.set()
        self._empty.clear()

    async def run(self) -> None:
        """Write what is queued, for ever. Lost answers and outages are retried."""
        while True:
            await self._work.wait()
            batch, self._gathered = self._gathered[:MAX_BATCH], self._gathered[MAX_BATCH:]
            if not self._gathered:
                self._work.clear()
            started = time.monotonic()
            written = await self._until_answered(batch)
            self._in_flight.release(settled.message for settled in batch)
            self._emit(Finalized(*written, seconds=time.monotonic() - started))
            if not self._gathered:
                self._empty.set()

    async def idle(self) -> None:
        """Return once everything that was added has been answered for."""
        await self._empty.wait()

    async def _until_answered(self, batch: list[Settled]) -> Written:
        backoff = Backoff()
        retried = False
        while True:
            try:
                return await finalize(self._db, batch, retried=retried)
            except DATABASE_ERRORS as error:
                retried = True
                self._emit(DatabaseFailed.because("finalize", error))
            await backoff.pause()
