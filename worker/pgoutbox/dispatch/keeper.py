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
    from collections.abc import Callable, Mapping

    from pgoutbox.database.pool import Database
    from pgoutbox.dispatch.flight import Destination, Flight, InFlight
    from pgoutbox.events import Event

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
    ) -> None:
        self._db = db
        self._in_flight = in_flight
        self._emit = emit
        self._lease = lease
        self._interval = interval
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
        kept = await renew(self._db, [flight.message for flight in due], lease=self._lease)
        for flight in due:
            if flight.message.lease in kept:
                flight.lease_ends = sent + self._lease
        self._emit(Renewed(len(kept), time.monotonic() - sent))
        # What is settled meanwhile is the finalize's to report: it may just have been written.
        lost = [
            flight
            for flight in due
            if flight.message.lease not in kept and not (flight.settled or flight.abandoned)
        ]
        if lost:
            for flight in lost:
                flight.abandon()
            self._in_flight.release(flight.message for flight in lost)
            self._emit(LeaseLost([flight.message for flight in lost]))

    async def watch_forever(self, destinations: Mapping[str, Destination]) -> None:
        """Cancel what takes too long or may soon be somebody else's, give up what does not end."""
        while True:
            await asyncio.sleep(WATCH_SECONDS)
            now = time.monotonic()
            publishing = [f for f in self._in_flight if not (f.settled or f.abandoned)]
            for flight in publishing:
                limit = destinations[flight.message.destination].publish_timeout
                if now - flight.started > limit + HUNG_AFTER:
                    self._give_up(flight, limit + HUNG_AFTER)
                elif now - flight.started > limit and flight.verdict is None:
                    flight.cancel(RetryableFailure(f"no answer within {limit:g} s"))
            self._fence([f for f in publishing if f.lease_ends - self.margin <= now])

    def _fence(self, flights: list[Flight]) -> None:
        unconfirmed = [flight for flight in flights if flight.verdict is None]
        for flight in unconfirmed:
            flight.cancel(RetryableFailure("cancelled: the lease could not be renewed in time"))
        if unconfirmed:
            self._emit(LeaseUnconfirmed([flight.message for flight in unconfirmed]))

    def _give_up(self, flight: Flight, limit: float) -> None:
        # The destination's slot stays taken, since the publish still runs; the lease is left to
        # expire, which spends the attempt.
        flight.abandon()
        self._in_flight.release([flight.message])
        error = TimeoutError(f"the publisher ignored its cancellation for {limit:g} s")
        self._emit(PublisherFailed(flight.message, error))
