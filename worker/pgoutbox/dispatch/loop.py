"""The wheel: claims what can start now or soon, and keeps everything else turning beside it."""

from __future__ import annotations

import asyncio
import time
import uuid
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING

from pgoutbox.database.pool import DATABASE_ERRORS
from pgoutbox.dispatch.backoff import Backoff
from pgoutbox.dispatch.claimer import Claimer
from pgoutbox.dispatch.deliver import Deliverer
from pgoutbox.dispatch.finalizer import Finalizer
from pgoutbox.dispatch.flight import InFlight
from pgoutbox.dispatch.keeper import Keeper
from pgoutbox.dispatch.reclaimer import Reclaimer
from pgoutbox.dispatch.scan import SWEEP_SECONDS
from pgoutbox.dispatch.start import Starter
from pgoutbox.dispatch.tally import DrainCount, Tally
from pgoutbox.events import DatabaseFailed, DatabaseRecovered, DestinationStopped

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pgoutbox.database.pool import Database
    from pgoutbox.destinations.destination import Destination
    from pgoutbox.dispatch.finalize_statements import Mode
    from pgoutbox.dispatch.wakeup import Wakeup
    from pgoutbox.events import Event

MAX_CLAIM = 500
CLAIM_STEP = 25
"""By how much the next claim may be larger than one that worked, after one that did not."""
TIMER_SLACK = 0.001
"""Seconds by which the event loop's timers may be early."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DispatchOptions:
    """What the loop needs to know. Durations in seconds."""

    owner: str
    incarnation: str = field(default_factory=lambda: str(uuid.uuid4()))
    max_in_flight: int = 200
    lease: float = 30.0
    renew: float = 10.0
    reclaim_interval: float = 5.0
    """How late an expired lease may be noticed."""
    reap_interval: float = 10.0
    heartbeat_interval: float = 10.0
    prune_interval: float = 60.0
    sweep_interval: float = SWEEP_SECONDS
    """How late a message may be noticed whose transaction took longer than ten seconds."""
    retention: timedelta = timedelta(days=7)
    retention_mode: Mode = "keep"
    retry_unclassified: bool = False


@dataclass(frozen=True, slots=True)
class StopRequest:
    """Why the dispatcher is to drain, and what the process exits with."""

    reason: str
    exit_code: int


class Dispatcher:
    """Holds the parts together. `run` claims until `request_stop`; `drain` puts it to rest."""

    def __init__(
        self,
        db: Database,
        destinations: Mapping[str, Destination],
        wakeup: Wakeup,
        options: DispatchOptions,
        emit: Callable[[Event], None],
    ) -> None:
        self.db = db
        self.destinations = destinations
        self.options = options
        self.tally = Tally()
        self._assemble()
        self.stop: StopRequest | None = None
        self._wakeup = wakeup
        self._observe = emit
        self._stopping = asyncio.Event()
        self._failing_since: float | None = None
        self._drain_count: DrainCount | None = None
        self._in_vain: set[str] = set()
        """Destinations that were asked since something was found, while others had no slot left."""
        self._claim_limit = MAX_CLAIM
        self.in_flight.on_change = self._slot_freed
        self.in_flight.on_suspect_gone = self._reclaim_soon

    def _assemble(self) -> None:
        db, options, emit = self.db, self.options, self.emit
        self.in_flight = InFlight(options.max_in_flight)
        self.finalizer = Finalizer(db, self.in_flight, emit, retention=options.retention_mode)
        self.keeper = Keeper(
            db,
            self.in_flight,
            emit,
            lease=options.lease,
            interval=options.renew,
            on_hung=self._stop_destination,
        )
        self.deliverer = Deliverer(
            self.destinations, self.in_flight, self.finalizer, emit, self._unclassified
        )
        self.deliverer.margin = self.keeper.margin
        self.finalizer.on_unwritten = self.deliverer.stop_lanes
        self.keeper.on_lost = self.deliverer.stop_lanes
        self.starter = Starter(
            self.deliverer,
            options,
            emit,
            margin=self.keeper.margin,
            stopping=lambda: self.stop is not None,
        )
        self.reclaimer = Reclaimer(db, self.deliverer, self.starter, options, emit)
        self.claimer = Claimer(db, self.deliverer, self.starter, self.reclaimer, options, emit)

    def emit(self, event: Event) -> None:
        """Tell every observer."""
        self.tally.on_event(event)
        self.in_flight.usage.on_event(event)
        if self._drain_count is not None:
            self._drain_count.on_event(event)
        self._observe(event)

    def count_drain(self) -> DrainCount:
        """Count what becomes of the work in flight from now on."""
        self._drain_count = DrainCount()
        return self._drain_count

    def request_stop(self, reason: str, exit_code: int = 0) -> None:
        """Claim nothing more. The first request counts."""
        if self.stop is None:
            self.stop = StopRequest(reason, exit_code)
            self._stopping.set()
            self._wakeup.ring()
            self.in_flight.changed.set()

    async def stopping(self) -> None:
        """Return once somebody asked for the stop."""
        await self._stopping.wait()

    async def claim_forever(self) -> None:
        """Claim whenever there is room and reason to. Returns after `request_stop`.

        The claim that is under way then is awaited, and what it brings is handed back.
        """
        backoff = Backoff()
        while self.stop is None:
            self.in_flight.changed.clear()
            now = time.monotonic()
            slots = self._slots(now)
            if not slots:
                if self._in_vain:
                    # Those whose turn it was can take nothing any more: begin again with all.
                    self._in_vain.clear()
                else:
                    await self._room(now)
                continue
            try:
                full = await self._claim(slots)
                asked = await self._wakeup.switch(self.db)
            except DATABASE_ERRORS as error:
                self._failed(error)
                await backoff.pause()
                continue
            self._recovered()
            backoff.reset()
            self._claim_limit = min(self._claim_limit + CLAIM_STEP, MAX_CLAIM)
            if not (full or asked or self.stop):
                await self._idle()
            if asked or not full:
                self.claimer.woken(notified=False)

    def _slot_freed(self) -> None:
        self.in_flight.changed.set()
        if self.claimer.wanting():
            self._wakeup.nudge()

    def _slots(self, now: float) -> dict[str, int]:
        free = self.in_flight.free(self._wants(now), besides=self._in_vain)
        slots = {name: min(count, self._claim_limit) for name, count in free.items()}
        return slots | {name: 0 for name in self.claimer.ahead() if name not in slots}

    def _wants(self, now: float) -> dict[str, int]:
        """How many messages each destination could start that are not held yet."""
        ahead = self.deliverer.ahead
        wants = self.in_flight.wants(self.destinations, now)
        return {name: want - ahead[name].promised for name, want in wants.items()}

    def _reclaim_soon(self) -> None:
        """The suspect is gone: the next one may be tried."""
        self.reclaimer.soon()
        self._wakeup.nudge()

    async def _room(self, now: float) -> None:
        """Wait for a free slot, or for the moment when a destination may be given more.

        ``now`` is when there was none: a pause that has ended since counts as one that ends.
        """
        try:
            async with asyncio.timeout(self._reopens_in(now)):
                await self.in_flight.changed.wait()
        except TimeoutError:
            return

    async def _idle(self) -> None:
        """Wait for news, or for the moment when a destination may be given more."""
        reopens = self._reopens_in(time.monotonic())
        loop = asyncio.get_running_loop()
        alarm = None if reopens is None else loop.call_later(reopens, self._wakeup.nudge)
        try:
            await self._wakeup.wait()
        finally:
            if alarm is not None:
                alarm.cancel()

    def _reopens_in(self, now: float) -> float | None:
        pauses = [destination.opens_in(now) for destination in self.destinations.values()]
        reopens = min((pause for pause in pauses if pause > 0), default=None)
        # A hair late, or a timer that is a hair early would find it closed once more.
        return None if reopens is None else reopens + TIMER_SLACK

    async def _claim(self, slots: dict[str, int]) -> bool:
        """One turn; True when there may be more than the slots had room for."""
        asked = set(slots)
        if self._wakeup.is_notified:
            self.claimer.woken(notified=True)
        count, more = await self.claimer.turn(slots, self._claim_limit)
        self._wakeup.found(count)
        if count or more:
            self._in_vain.clear()
            return more
        return self._others_wait(asked)

    def _others_wait(self, asked: set[str]) -> bool:
        """After a claim in vain: whether there are destinations that had no slot to ask with.

        With fewer slots than destinations a due message would otherwise wait for a poll per turn.
        """
        self._in_vain.update(asked)
        # Only with slots that it could ask with: what is promised would be asked for in a circle,
        # and nothing else would have its turn.
        wants = self._wants(time.monotonic())
        if any(want > 0 and name not in self._in_vain for name, want in wants.items()):
            return True
        self._in_vain.clear()
        return False

    def _failed(self, error: Exception) -> None:
        # Perhaps it asked for more than gets through in time.
        largest = max((d.concurrency for d in self.destinations.values()), default=1)
        self._claim_limit = max(min(self._claim_limit, largest) // 2, 1)
        if self._failing_since is None:
            self._failing_since = time.monotonic()
        self.emit(DatabaseFailed.because("claim", error))

    def _recovered(self) -> None:
        if self._failing_since is not None:
            self.emit(DatabaseRecovered(time.monotonic() - self._failing_since))
            self._failing_since = None

    def _unclassified(self, destination: Destination, error: Exception) -> bool:
        """A bug in a publisher. True: take it for a failure that may pass."""
        if self.options.retry_unclassified:
            return True
        self._stop_destination(destination, error)
        return False

    def _stop_destination(self, destination: Destination, error: Exception) -> None:
        """Claim nothing more for it; with the last one the worker ends."""
        if not destination.stopped:
            destination.stopped = True
            self.emit(DestinationStopped(destination.name, str(error)))
        if all(other.stopped for other in self.destinations.values()):
            self.request_stop(f"no destination is left; the last error was: {error}", exit_code=1)
