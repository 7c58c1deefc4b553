"""The rhythm of the sweeps: what is due, in one task and one statement at a time."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any

from pgoutbox._version import __version__
from pgoutbox.database.pool import DATABASE_ERRORS
from pgoutbox.dispatch.backoff import Backoff
from pgoutbox.dispatch.sweep import FORGET, Heartbeat, beat, prune, reap
from pgoutbox.events import DatabaseFailed, Pruned, Reaped

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from pgoutbox.dispatch.loop import Dispatcher

PRUNE_BATCH = 1000
PRUNE_SECONDS = 1.0
"""The longest that one round prunes, so that the other sweeps get their turn."""
FORGET_SECONDS = 600.0


class Rounds:
    """Calls each sweep in its interval. Each books its next turn before it works."""

    def __init__(self, dispatcher: Dispatcher) -> None:
        self._dispatcher = dispatcher
        options = dispatcher.options
        self._sweeps: dict[str, tuple[float, Callable[[], Awaitable[None]]]] = {
            "heartbeat": (options.heartbeat_interval, self.heartbeat),
            "reap": (options.reap_interval, self.reap),
            "prune": (options.prune_interval, self.prune),
            "forget": (FORGET_SECONDS, self.forget),
        }

    async def run(self) -> None:
        """Until cancelled. A sweep that fails waits for its next turn."""
        due = dict.fromkeys(self._sweeps, time.monotonic())
        backoff = Backoff()
        while True:
            name = min(due, key=due.__getitem__)
            await asyncio.sleep(max(0.0, due[name] - time.monotonic()))
            interval, sweep = self._sweeps[name]
            due[name] = time.monotonic() + interval
            try:
                await sweep()
            except DATABASE_ERRORS as error:
                self._dispatcher.emit(DatabaseFailed.because(name, error))
                await backoff.pause()
            else:
                backoff.reset()

    async def heartbeat(self) -> None:
        """Write this worker's row."""
        dispatcher = self._dispatcher
        await beat(
            dispatcher.db,
            Heartbeat(
                incarnation=dispatcher.options.incarnation,
                owner=dispatcher.options.owner,
                version=__version__,
                state="running" if dispatcher.stop is None else "draining",
                slots=dispatcher.options.max_in_flight,
                busy=len(dispatcher.in_flight),
                counters=dispatcher.tally.counts,
                destinations=self._destinations(),
            ),
        )

    def _destinations(self) -> dict[str, dict[str, Any]]:
        now = time.monotonic()
        return {
            name: {
                "stopped": destination.stopped,
                "breaker": "open" if destination.reachability.reopens_in(now) else "closed",
            }
            for name, destination in self._dispatcher.destinations.items()
        }

    async def reap(self) -> None:
        """Bury what expired at its limit."""
        destinations = self._dispatcher.destinations
        counts = await reap(
            self._dispatcher.db,
            {name: destination.policy.max_attempts for name, destination in destinations.items()},
        )
        if counts:
            self._dispatcher.emit(Reaped(dict(counts)))

    async def prune(self) -> None:
        """Delete old finished messages, in batches and for a second at most."""
        until = time.monotonic() + PRUNE_SECONDS
        total = 0
        while time.monotonic() < until:
            count = await prune(
                self._dispatcher.db, keep=self._dispatcher.options.retention, limit=PRUNE_BATCH
            )
            total += count
            if count < PRUNE_BATCH:
                break
        if total:
            self._dispatcher.emit(Pruned(total))

    async def forget(self) -> None:
        """Delete the rows of workers that were killed long ago."""
        await self._dispatcher.db.execute(FORGET)
