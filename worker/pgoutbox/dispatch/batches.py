"""A sweep in batches, which are as large as works, and which go round single rows that fail."""

from __future__ import annotations

import asyncio
import random
import time
from typing import TYPE_CHECKING

import psycopg
from psycopg.errors import QueryCanceled

from pgoutbox.dispatch.careful import is_about_rows
from pgoutbox.dispatch.retention import Beyond
from pgoutbox.events import DatabaseFailed

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from pgoutbox.dispatch.retention import First
    from pgoutbox.events import Event

    Sweep = Callable[[int, Beyond], Awaitable[int | None]]
    """So many at most, and from where on; how many it were, None while another worker is at it."""
    Find = Callable[[Beyond], Awaitable[First | None]]

MAX_BATCH = 1000
TURN_SECONDS = 5.0
"""When to ask again while another worker is at it; half of it is random."""
LEFT_SECONDS = 3600.0
"""How long a row that fails is left alone."""
MAX_LEFT = 1000
"""Rows that are named one by one; what is more is stepped over by its time."""


class Batches:
    """Remembers what works."""

    def __init__(self, doing: str, busy: Callable[[], bool], emit: Callable[[Event], None]) -> None:
        self._doing = doing
        self._busy = busy
        self._emit = emit
        self._limit = MAX_BATCH
        self._ceiling = MAX_BATCH
        """What gets through in time."""
        self._beyond = Beyond()
        self._left_since = 0.0
        self._left: list[str] = []
        """What this round left alone, and why."""

    async def run(self, sweep: Sweep, find: Find, *, seconds: float) -> tuple[int, float | None]:
        """Repeat it for ``seconds`` at most; how many rows it were, and when to go on, in seconds.

        At once where more is left, and soon where another worker is at it or where nothing but
        failures came of it. None: nothing is left, so the usual interval will do. ``find`` names
        the first row that ``sweep`` would meet. Raises `DATABASE_ERRORS` for what is no row's
        fault.
        """
        if self._beyond != Beyond() and time.monotonic() >= self._left_since + LEFT_SECONDS:
            self._beyond = Beyond()
        self._left.clear()
        try:
            return await self._run(sweep, find, time.monotonic() + seconds)
        finally:
            if self._left:
                self._emit(DatabaseFailed(self._doing, _what(self._left)))

    async def _run(self, sweep: Sweep, find: Find, until: float) -> tuple[int, float | None]:
        total = 0
        while True:
            began, limit = time.monotonic(), self._limit
            try:
                count = await sweep(limit, self._beyond)
            except psycopg.Error as error:
                if not await self._failed(error, find):
                    return total, None
            else:
                total += count or 0
                if count is None or count < limit:
                    return total, _soon() if count is None else None
                self._worked()
            if time.monotonic() >= until:
                return total, 0.0 if total or self._limit < limit else _soon()
            if self._busy():
                # Messages first: as much time for them as for what is old.
                await asyncio.sleep(time.monotonic() - began)

    def _worked(self) -> None:
        # Slowly, for each try that is too large costs a whole statement timeout.
        self._ceiling = min(self._ceiling + self._ceiling // 10 + 1, MAX_BATCH)
        self._limit = min(2 * self._limit, self._ceiling)

    async def _failed(self, error: psycopg.Error, find: Find) -> bool:
        """Try fewer, or step over the one that failed; False: there is no use in going on.

        Raises what is no row's fault.
        """
        slow = isinstance(error, QueryCanceled)
        if not (slow or is_about_rows(error)):
            raise error
        if self._limit > 1:
            self._limit //= 2
            if slow:
                self._ceiling = self._limit
                self._emit(DatabaseFailed.because(self._doing, error))
            return True
        first = await find(self._beyond)
        if first is None:
            return False
        if self._beyond == Beyond():
            self._left_since = time.monotonic()
        if len(self._beyond.ids) < MAX_LEFT:
            self._beyond = self._beyond._replace(ids=(*self._beyond.ids, first.id))
        else:
            self._beyond = Beyond(first.done_at, (first.id,))
        self._left.append(f"id {first.id}: {error.diag.message_primary or error}")
        # If it is no row but a lock that takes so long, the next one would fare no better.
        return not slow


def _soon() -> float:
    return TURN_SECONDS * random.uniform(0.5, 1.0)  # noqa: S311 - jitter


def _what(left: list[str]) -> str:
    return f"{len(left)} of the rows are left alone for an hour, among them {left[0]}"
