"""The rhythm of the sweeps: what is due, in one task and one statement at a time."""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter
from typing import TYPE_CHECKING, Any

from pgoutbox._version import __version__
from pgoutbox.database.pool import DATABASE_ERRORS
from pgoutbox.dispatch.backoff import Backoff
from pgoutbox.dispatch.batches import Batches
from pgoutbox.dispatch.careful import is_about_rows
from pgoutbox.dispatch.reclaimer import Back
from pgoutbox.dispatch.retention import (
    archive_kept,
    expire_archive,
    first_kept,
    first_old,
    prepare_archive,
    prune,
)
from pgoutbox.dispatch.singly import Singly
from pgoutbox.dispatch.sweep import FORGET, REAP_BATCH, Heartbeat, beat, reap
from pgoutbox.events import DatabaseFailed, Pruned, Reaped

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from datetime import timedelta

    from pgoutbox.dispatch.loop import Dispatcher
    from pgoutbox.dispatch.singly import Expired

PRUNE_SECONDS = 1.0
"""The longest that one round prunes, so that the other sweeps get their turn."""
FORGET_SECONDS = 600.0
ARCHIVE_SECONDS = 300.0
EXPIRE_SECONDS = 3600.0
"""Seldom, for each try may keep all who want the archive waiting for a second."""


class Rounds:
    """Calls each sweep in its interval, or sooner where it asks for that."""

    def __init__(self, dispatcher: Dispatcher) -> None:
        self._dispatcher = dispatcher
        options = dispatcher.options
        self._back = Back()
        self._old = Batches("prune", self._busy, dispatcher.emit)
        self._kept = Batches("archive", self._busy, dispatcher.emit)
        self._singly = Singly(
            dispatcher.db, "reap", lambda: dispatcher.in_flight.ids, dispatcher.emit
        )
        self._sweeps: dict[str, tuple[float, Callable[[], Awaitable[float | None]]]] = {
            # First of all: what is finished before it is ready has to be moved once more.
            "archive": (ARCHIVE_SECONDS, self.archive),
            "heartbeat": (options.heartbeat_interval, self.heartbeat),
            "reap": (options.reap_interval, self.reap),
            "prune": (options.prune_interval, self.prune),
            "expire": (EXPIRE_SECONDS, self.expire),
            "forget": (FORGET_SECONDS, self.forget),
        }

    async def run(self) -> None:
        """Until cancelled. A sweep that fails waits for its next turn."""
        due = dict.fromkeys(self._sweeps, time.monotonic())
        # Workers that were started together must not meet at its lock each time.
        due["prune"] += self._dispatcher.options.prune_interval * random.random()  # noqa: S311 - jitter
        backoff = Backoff()
        while True:
            name = min(due, key=due.__getitem__)
            await asyncio.sleep(max(0.0, due[name] - time.monotonic()))
            interval, sweep = self._sweeps[name]
            due[name] = time.monotonic() + interval
            try:
                sooner = await sweep()
            except DATABASE_ERRORS as error:
                self._dispatcher.emit(DatabaseFailed.because(name, error))
                await backoff.pause()
            else:
                backoff.reset()
                if sooner is not None:
                    due[name] = time.monotonic() + min(sooner, interval)

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
                counters=self._counters(),
                destinations=self._destinations(),
            ),
        )

    def _counters(self) -> dict[str, float]:
        """Since the process began; `pgoutbox_operator.scaling.sample.Worker` says what for."""
        dispatcher = self._dispatcher
        attempts = dispatcher.deliverer.attempts
        slots = {name: one.concurrency for name, one in dispatcher.destinations.items()}
        return {
            **dispatcher.tally.counts,
            "attempts": attempts.ended,
            "failed": attempts.failed,
            "busy_seconds": round(dispatcher.in_flight.usage.seconds(slots), 3),
        }

    def _destinations(self) -> dict[str, dict[str, Any]]:
        now = time.monotonic()
        return {
            name: {
                "stopped": destination.stopped,
                "breaker": destination.breaker.state(now),
                "slots": destination.concurrency,
            }
            for name, destination in self._dispatcher.destinations.items()
        }

    async def reap(self) -> float | None:
        """Bury what expired at its limit. Goes on at once where a destination had a full batch."""
        since = self._back.reach(time.monotonic())
        limits = self._limits()
        try:
            counts, full = await self._reap(limits, self._singly.held(), since), None
        except DATABASE_ERRORS as error:
            if not is_about_rows(error):
                raise
            counts, full = await self._reap_singly(limits, since)
        if full is None:
            self._back.answered(time.monotonic())
            full = any(count >= REAP_BATCH for count in counts.values())
        if counts:
            self._dispatcher.emit(Reaped(dict(counts)))
        if full:
            self._back.again()
            return 0.0
        return None

    def _limits(self) -> dict[str, int]:
        destinations = self._dispatcher.destinations
        return {name: destination.policy.max_attempts for name, destination in destinations.items()}

    async def _reap(
        self, limits: dict[str, int], held: list[int], since: timedelta
    ) -> Counter[str]:
        destinations = self._dispatcher.destinations
        skips = [name for name in limits if destinations[name].policy.dead_head == "skip"]
        return await reap(self._dispatcher.db, limits, held, skips, since)

    async def _reap_singly(
        self, limits: dict[str, int], since: timedelta
    ) -> tuple[Counter[str], bool | None]:
        """Also whether to go on at once; None: all was looked at."""
        counts: Counter[str] = Counter()

        async def take(one: Expired, others: list[int]) -> None:
            limit = {one.destination: limits[one.destination]}
            counts.update(await self._reap(limit, others, since))

        all_tried = await self._singly.each(
            limits, since, lambda one: one.attempts >= limits[one.destination], take
        )
        return counts, None if all_tried else True

    async def prune(self) -> float | None:
        """Delete old finished messages, whatever the mode; when to go on, as for `Batches.run`."""
        db, keep = self._dispatcher.db, self._dispatcher.options.retention
        total, sooner = await self._old.run(
            lambda limit, beyond: prune(db, keep=keep, limit=limit, beyond=beyond),
            lambda beyond: first_old(db, keep=keep, beyond=beyond),
            seconds=PRUNE_SECONDS,
        )
        if total:
            self._dispatcher.emit(Pruned(total))
        return sooner

    async def archive(self) -> float | None:
        """Keep the archive ready, and move there what was finished while it was not."""
        if self._dispatcher.options.retention_mode != "archive":
            return None
        db = self._dispatcher.db
        await prepare_archive(db)
        _, sooner = await self._kept.run(
            lambda limit, beyond: archive_kept(db, limit=limit, beyond=beyond),
            lambda beyond: first_kept(db, beyond=beyond),
            seconds=PRUNE_SECONDS,
        )
        return sooner

    async def expire(self) -> None:
        """Drop the old days of the archive, also of one that is not used any more."""
        await expire_archive(self._dispatcher.db, keep=self._dispatcher.options.retention)

    def _busy(self) -> bool:
        """Whether more than half of the worker's room is taken."""
        return 2 * len(self._dispatcher.in_flight) > self._dispatcher.options.max_in_flight

    async def forget(self) -> None:
        """Delete the rows of workers that were killed long ago."""
        await self._dispatcher.db.execute(FORGET)
