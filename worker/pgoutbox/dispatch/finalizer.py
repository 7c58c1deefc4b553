"""Keeps one finalize in flight: each takes what has gathered while the one before it ran."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

from psycopg.errors import QueryCanceled

from pgoutbox.database.pool import DATABASE_ERRORS
from pgoutbox.dispatch.backoff import Backoff
from pgoutbox.dispatch.finalize import PATIENCE, finalize
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
        self._again: list[Settled] = []
        """Could not be written when it was tried; the others must not wait for it."""
        self._again_at = 0.0
        self._backoff = Backoff()
        self._limit = MAX_BATCH
        self._work = asyncio.Event()
        self._empty = asyncio.Event()
        self._empty.set()

    def add(self, settled: Settled) -> None:
        """Queue one transition."""
        self._gathered.append(settled)
        self._work.set()
        self._empty.clear()

    async def run(self) -> None:
        """Write what is queued, for ever. Lost answers, outages and locks are retried."""
        while True:
            batch, again = await self._next_batch()
            started = time.monotonic()
            written = await self._until_answered(batch, again=again)
            if written is None:
                self._put_back(batch, again=again)
                continue
            if written.locked:
                self._put_back(written.locked, again=again)
                self._emit(DatabaseFailed("finalize", _whose(written.locked)))
            elif again:
                self._backoff.reset()
            self._answered(batch, written, time.monotonic() - started)

    async def idle(self) -> None:
        """Return once everything that was added has been answered for."""
        await self._empty.wait()

    async def _next_batch(self) -> tuple[list[Settled], bool]:
        """What is to be written next, and whether it was tried before."""
        while True:
            pause = self._again_at - time.monotonic() if self._again else None
            if pause is not None and pause <= 0:
                batch, self._again = self._again[: self._limit], self._again[self._limit :]
                return batch, True
            if self._gathered:
                batch = self._gathered[: self._limit]
                self._gathered = self._gathered[self._limit :]
                return batch, False
            self._work.clear()
            try:
                async with asyncio.timeout(pause):
                    await self._work.wait()
            except TimeoutError:
                pass

    async def _until_answered(self, batch: list[Settled], *, again: bool) -> Written | None:
        """None: the statement was canceled, and is to be tried with fewer rows at a time."""
        backoff = Backoff()
        retried = again
        # Nobody waits for a row that is known to be locked, nor for others meanwhile: whoever
        # locks one may be about to lock them all.
        patience = 0.0 if again or self._again else PATIENCE
        while True:
            try:
                written = await finalize(self._db, batch, retried=retried, patience=patience)
            except DATABASE_ERRORS as error:
                retried = True
                self._emit(DatabaseFailed.because("finalize", error))
                if isinstance(error, QueryCanceled) and len(batch) > 1:
                    self._limit = (len(batch) + 1) // 2
                    return None
            else:
                # Slowly, for each try that is too large costs a whole statement timeout.
                self._limit = min(self._limit + self._limit // 10 + 1, MAX_BATCH)
                return written
            await backoff.pause()

    def _put_back(self, batch: list[Settled], *, again: bool) -> None:
        # New ones join those that wait, whose turn must not move away with each of them.
        if again or not self._again:
            self._again_at = time.monotonic() + self._backoff.next()
        self._again += batch

    def _answered(self, batch: list[Settled], written: Written, seconds: float) -> None:
        locked = {settled.message.lease for settled in written.locked}
        answered = [s.message for s in batch if s.message.lease not in locked]
        if answered:
            self._in_flight.release(answered)
            self._emit(
                Finalized(
                    written.written,
                    written.lost,
                    written.already_written,
                    written.unknown,
                    written.refused,
                    seconds,
                )
            )
        if not (self._gathered or self._again):
            self._empty.set()


def _whose(locked: list[Settled]) -> str:
    return (
        f"another transaction has locked {len(locked)} of the rows to be written, among them"
        f" id {locked[0].message.id}; they are tried again until it ends"
    )
