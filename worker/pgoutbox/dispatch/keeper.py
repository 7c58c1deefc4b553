"""Keeps the leases of what is in flight, and lets go of what it cannot keep."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

from pgoutbox.database.pool import DATABASE_ERRORS
from pgoutbox.dispatch.backoff import Backoff
from pgoutbox.dispatch.renew import renew
from pgoutbox.events import DatabaseFailed, LeaseLost, LeaseUnconfirmed, PublisherFailed, Renewed
from pgoutbox.outcome import RetryableFailure

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from pgoutbox.database.pool import Database
    from pgoutbox.destinations.destination import Destination
    from pgoutbox.dispatch.flight import Flight, InFlight
    from pgoutbox.events import Event
    from pgoutbox.message import ClaimedMessage

WATCH_SECONDS = 0.1
"""How precisely a publish timeout is kept."""
FENCE_MARGIN = 2.0
"""A publish is cancelled this long before a lease ends that could not be confirmed: two seconds,
or a tenth of a short lease."""
HUNG_AFTER = 5.0
"""Seconds that a publisher has to end after its timeout cancelled it."""


class Keeper:
    """Renews every ``interval`` seconds for another ``lease`` seconds."""

    def __init__(
        self,
        db: Database,
        in_flight: InFlight,
        emit: Callable[[Event], None],
        *,
        lease: float,
        interval: float,
        on_hung: Callable[[Destination, TimeoutError], object] = lambda *_: None,
    ) -> None:
        self._db = db
        self._in_flight = in_flight
        self._emit = emit
        self._lease = lease
        self._interval = interval
        self._on_hung = on_hung
        """Called when no slot of a destination is left that does not hang."""
        self.on_lost: Callable[[Sequence[ClaimedMessage]], object] = lambda _: None
        """Called with what is somebody else's by now, or left to its lease, before its release."""
        self.margin = min(FENCE_MARGIN, lease / 10)

    async def renew_forever(self) -> None:
        """One renewal an interval; a failed one is tried again until it works."""
        backoff = Backoff()
        while True:
            await asyncio.sleep(self._interval)
            while True:
                try:
                    await self._renew()
                except DATABASE_ERRORS as error:
                    self._emit(DatabaseFailed.because("renew", error))
                    await backoff.pause()
                else:
                    backoff.reset()
                    break

    async def _renew(self) -> None:
        # Whether the renewal takes effect before or after its answer is lost, the lease is not
        # shorter than this: counted from before the statement is sent.
        sent = time.monotonic()
        fresh = sent + self._lease - self._interval / 2
        due = [flight for flight in self._in_flight if flight.lease_ends < fresh]
        if not due:
            return
        renewal = await renew(self._db, [flight.message for flight in due], lease=self._lease)
        kept = [flight for flight in due if flight.message.lease in renewal.kept]
        for flight in kept:
            flight.lease_ends = sent + self._lease
        messages = [flight.message for flight in kept]
        self._emit(Renewed(len(renewal.kept), time.monotonic() - sent, messages))
        # What is settled meanwhile is the finalize's to report: it may just have been written.
        lost = [f for f in due if f.publishing and f.message.lease in renewal.lost]
        if lost:
            for flight in lost:
                flight.abandon()
            self.on_lost([flight.message for flight in lost])
            self._in_flight.release(flight.message for flight in lost)
            started = [None if flight.task is None else flight.started for flight in lost]
            self._emit(LeaseLost([flight.message for flight in lost], started))

    async def watch_forever(self, destinations: Mapping[str, Destination]) -> None:
        """Cancel what takes too long or may soon be somebody else's, give up what does not end."""
        while True:
            await asyncio.sleep(WATCH_SECONDS)
            now = time.monotonic()
            for flights in self._in_flight.running():
                if all(flight.settled for flight in flights):
                    continue
                destination = destinations[flights[0].message.destination]
                self._watch(flights, destination, now - flights[0].started)
            self._fence(now)

    def _watch(self, flights: Sequence[Flight], destination: Destination, seconds: float) -> None:
        limit = destination.publish_timeout
        if seconds > limit + HUNG_AFTER:
            self._give_up(flights, destination, limit + HUNG_AFTER)
        elif seconds > limit and flights[0].verdict is None:
            flights[0].cancel(RetryableFailure(f"no answer within {limit:g} s", timed_out=True))

    def _fence(self, now: float) -> None:
        unconfirmed = [
            flight
            for flight in self._in_flight
            if flight.task is not None
            and flight.publishing
            and flight.verdict is None
            and flight.lease_ends - self.margin <= now
        ]
        for flight in unconfirmed:
            flight.cancel(RetryableFailure("cancelled: the lease could not be renewed in time"))
        if unconfirmed:
            self._emit(LeaseUnconfirmed([flight.message for flight in unconfirmed]))

    def _give_up(self, flights: Sequence[Flight], destination: Destination, limit: float) -> None:
        # The slots stay taken, since the publish still runs; the leases are left to expire, which
        # spends the attempt.
        error = TimeoutError(f"the publisher ignored its cancellation for {limit:g} s")
        self._emit(PublisherFailed(flights[0].message, error))
        self.on_lost([flight.message for flight in flights])
        if self._in_flight.give_up(flights) >= destination.concurrency:
            self._on_hung(destination, error)
