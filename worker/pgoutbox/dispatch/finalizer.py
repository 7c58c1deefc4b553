"""Keeps one finalize in flight: each takes what has gathered while the one before it ran."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

from pgoutbox.database.pool import DATABASE_ERRORS
from pgoutbox.dispatch.backoff import Backoff
from pgoutbox.dispatch.finalize import PATIENCE, finalize
from pgoutbox.dispatch.together import cut
from pgoutbox.events import DatabaseFailed, Finalized

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pgoutbox.database.pool import Database
    from pgoutbox.dispatch.finalize import Written
    from pgoutbox.dispatch.finalize_statements import Mode
    from pgoutbox.dispatch.flight import InFlight
    from pgoutbox.events import Event, Refused, Settled
    from pgoutbox.message import ClaimedMessage

MAX_BATCH = 2000
KEEP_SECONDS = 30.0
"""How long what is done stays in the outbox, once it could not leave: a try may cost a whole
statement timeout."""


class Finalizer:
    """Writes transitions until each is written, refused, or this worker's time is up."""

    def __init__(
        self,
        db: Database,
        in_flight: InFlight,
        emit: Callable[[Event], None],
        *,
        retention: Mode = "keep",
    ) -> None:
        self._db = db
        self._retention: Mode = retention
        self._keep_until = 0.0
        self._in_flight = in_flight
        self._emit = emit
        self._gathered: list[Settled] = []
        self._again: list[Settled] = []
        """Could not be written when it was tried; the others must not wait for it."""
        self._again_at = 0.0
        self.on_unwritten: Callable[[Sequence[ClaimedMessage]], object] = lambda _: None
        """Called with what turned out to be lost or was refused, before it is released."""
        self._backoff = Backoff()
        self._limit = MAX_BATCH
        self._limit_again = MAX_BATCH
        self._work = asyncio.Event()
        self._empty = asyncio.Event()
        self._empty.set()

    def add(self, settled: Settled) -> None:
        """Queue one transition. Those of a lane that follow one another are written together."""
        self._gathered.append(settled)
        self._work.set()
        self._empty.clear()

    async def run(self) -> None:
        """Write what is queued, for ever. Lost answers, outages and locks are retried."""
        while True:
            batch, again = await self._next_batch()
            started = time.monotonic()
            written = await self._until_answered(batch, again=again)
            seconds = time.monotonic() - started
            if again:
                self._adapt_again(len(batch), written)
            else:
                self._adapt(len(batch), written)
            self._tell(written)
            if waiting := _waiting(written):
                self._put_back(waiting, seconds, again=again)
            self._answered(batch, written, seconds)

    async def idle(self) -> None:
        """Return once everything that was added has been answered for."""
        await self._empty.wait()

    async def _next_batch(self) -> tuple[list[Settled], bool]:
        """What is to be written next, and whether it was tried before."""
        while True:
            pause = self._again_at - time.monotonic() if self._again else None
            if pause is not None and pause <= 0:
                batch, self._again = cut(self._again, self._limit_again)
                return batch, True
            if self._gathered:
                batch, self._gathered = cut(self._gathered, self._limit)
                return batch, False
            self._work.clear()
            try:
                async with asyncio.timeout(pause):
                    await self._work.wait()
            except TimeoutError:
                pass

    async def _until_answered(self, batch: list[Settled], *, again: bool) -> Written:
        """Try until the server has dealt with the batch; what fails now fails for all rows."""
        backoff = Backoff()
        retried = again
        # Nobody waits for a row that is known to be locked, nor for others meanwhile: whoever
        # locks one may be about to lock them all.
        patience = 0.0 if again or self._again else PATIENCE
        while True:
            try:
                return await finalize(
                    self._db,
                    batch,
                    retried=retried,
                    patience=patience,
                    retention=self._mode(),
                )
            except DATABASE_ERRORS as error:
                retried = True
                self._emit(DatabaseFailed.because("finalize", error))
            await backoff.pause()

    def _mode(self) -> Mode:
        return "keep" if time.monotonic() < self._keep_until else self._retention

    def _adapt(self, size: int, written: Written) -> None:
        if written.canceled:
            self._limit = (size + 1) // 2
        else:
            # Slowly, for each try that is too large costs a whole statement timeout.
            self._limit = min(self._limit + self._limit // 10 + 1, MAX_BATCH)

    def _adapt_again(self, size: int, written: Written) -> None:
        moved = len(_waiting(written)) < size
        if moved:
            self._backoff.reset()
        if not written.stuck:
            self._limit_again = min(self._limit_again * 2, MAX_BATCH)
        elif not moved:
            # Fewer at a time, so that each has its turn without the others.
            self._limit_again = max(size // 4, 2)

    def _tell(self, written: Written) -> None:
        for error in written.canceled:
            self._emit(DatabaseFailed.because("finalize", error))
        if written.kept:
            self._keep_until = time.monotonic() + KEEP_SECONDS
        for why in written.kept:
            self._emit(DatabaseFailed("finalize", f"what was delivered stays in the outbox: {why}"))
        if written.locked:
            self._emit(DatabaseFailed("finalize", _whose(written.locked)))
        if written.stuck:
            self._emit(DatabaseFailed("finalize", _what(written.stuck)))

    def _put_back(self, waiting: list[Settled], seconds: float, *, again: bool) -> None:
        # New ones join those that wait, whose turn must not move away with each of them.
        if again or not self._again:
            # A try that takes long must leave as much time to the others.
            pause = max(self._backoff.next(), seconds if again else 0.0)
            self._again_at = time.monotonic() + pause
        self._again += waiting

    def _answered(self, batch: list[Settled], written: Written, seconds: float) -> None:
        waiting = {settled.message.lease for settled in _waiting(written)}
        answered = [s.message for s in batch if s.message.lease not in waiting]
        unwritten = [*written.lost, *(refused.settled for refused in written.refused)]
        if unwritten:
            self.on_unwritten([settled.message for settled in unwritten])
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


def _waiting(written: Written) -> list[Settled]:
    return [*written.locked, *(each.settled for each in written.stuck)]


def _whose(locked: list[Settled]) -> str:
    return (
        f"another transaction has locked {len(locked)} of the rows to be written, among them"
        f" id {locked[0].message.id}; they are tried again until it ends"
    )


def _what(stuck: list[Refused]) -> str:
    return (
        f"{len(stuck)} of the rows could not be written, among them"
        f" id {stuck[0].settled.message.id}: {stuck[0].error}; they are tried again while the"
        " others are written. Look at the triggers of the outbox and at the server's log"
    )
