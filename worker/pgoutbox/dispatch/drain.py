"""The only way to stop: numbered steps under one absolute deadline.

Nothing here waits without a limit, and no limit depends on a cancellation being delivered: a
dead database, broker or collector delays the exit by its step's seconds at most. What cannot be
written in time keeps its lease and is reclaimed by another worker when it expires.
"""

from __future__ import annotations

import asyncio
import logging
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pgoutbox.database.pool import DATABASE_ERRORS, bounded
from pgoutbox.dispatch.sweep import FAREWELL
from pgoutbox.events import DrainEnded, DrainStarted
from pgoutbox.outcome import Interrupted

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from pgoutbox.dispatch.loop import Dispatcher
    from pgoutbox.dispatch.tasks import Background
    from pgoutbox.publisher import BatchPublisher, Publisher


@dataclass(frozen=True, slots=True, kw_only=True)
class DrainTimes:
    """Seconds. ``grace`` is what the platform gives before it kills."""

    grace: float = 30.0
    soft: float = 20.0
    cancel: float = 3.0
    release: float = 2.0
    flush: float = 3.0
    margin: float = 2.0

    @property
    def total(self) -> float:
        """From the first signal to the exit, at the worst."""
        return self.soft + self.cancel + self.release + self.flush


class Deadline:
    """Seconds that are left, by step."""

    def __init__(self, times: DrainTimes, began: float) -> None:
        self.times = times
        self.began = began
        self._end = began + times.grace - times.margin

    def within(self, seconds: float) -> float:
        """So many, or what is left before the deadline if that is less."""
        return max(0.0, min(seconds, self._end - time.monotonic()))

    @property
    def elapsed(self) -> float:
        """Seconds since the first signal."""
        return time.monotonic() - self.began


async def drain(
    dispatcher: Dispatcher,
    background: Background,
    claiming: asyncio.Task[None],
    heartbeat: Callable[[], Coroutine[Any, Any, None]],
    deadline: Deadline,
) -> None:
    """Put the dispatcher to rest after `Dispatcher.request_stop`. Never raises.

    Renewals go on until the last step, so that what is still being published stays ours.
    """
    reason = dispatcher.stop.reason if dispatcher.stop else "drain"
    counted = dispatcher.count_drain()
    dispatcher.emit(DrainStarted(reason, len(dispatcher.in_flight)))

    # 1. What waits in its lane goes back. No new claim: the one under way is awaited, not
    # cancelled, and hands back what it brings.
    dispatcher.deliverer.hand_back_waiting()
    await background.cancel("listen", seconds=deadline.within(1.0))
    telling = asyncio.ensure_future(attempt(heartbeat(), deadline.within(1.0)))

    # 2. and 3. What is being published may end by itself; then it is cancelled.
    await _end_publishes(dispatcher, {claiming, telling}, deadline)

    # 4. Everything that was decided is written. With a dead database: tried until flush is due.
    left = deadline.within(deadline.times.grace) - deadline.times.flush
    await attempt(dispatcher.finalizer.idle(), max(left, 0.0))
    dispatcher.emit(
        DrainEnded(
            finished=counted.finished,
            handed_back=counted.handed_back,
            interrupted=counted.interrupted,
            abandoned=len(dispatcher.in_flight),
            seconds=deadline.elapsed,
        )
    )

    # 5. Say goodbye, close the publishers and the pool.
    await background.cancel(seconds=deadline.within(1.0))
    await _close(dispatcher, deadline)


async def _end_publishes(
    dispatcher: Dispatcher, others: set[asyncio.Task[None]], deadline: Deadline
) -> None:
    times = deadline.times
    waited = {asyncio.ensure_future(dispatcher.deliverer.ended()), *others}
    await asyncio.wait(waited, timeout=deadline.within(times.soft))
    # Nobody knows whether these arrived, so their attempt stays spent.
    for flight in dispatcher.in_flight:
        if flight.publishing:
            flight.cancel(Interrupted())
    await asyncio.wait(waited, timeout=deadline.within(times.cancel))


async def _close(dispatcher: Dispatcher, deadline: Deadline) -> None:
    release = deadline.times.release
    goodbye = {"incarnation": dispatcher.options.incarnation}
    await attempt(dispatcher.db.execute(FAREWELL, goodbye), deadline.within(1.0))
    closing = (_close_publisher(d.publisher) for d in dispatcher.destinations.values())
    await attempt(asyncio.gather(*closing, return_exceptions=True), deadline.within(release))
    await attempt(dispatcher.db.close(1.0), deadline.within(release))


async def _close_publisher(publisher: Publisher | BatchPublisher) -> None:
    # Somebody else's code, and nothing depends on it any more.
    try:
        await publisher.close()
    except (Exception, asyncio.CancelledError):
        logging.getLogger(__name__).warning("a publisher could not be closed", exc_info=True)


async def attempt(step: Coroutine[Any, Any, Any] | asyncio.Future[Any], seconds: float) -> None:
    """Run one step for at most so long; a step that fails does not stop the ones after it."""
    try:
        await bounded(step, seconds)
    except (*DATABASE_ERRORS, RuntimeError, asyncio.CancelledError):
        return
