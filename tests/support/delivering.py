"""A deliverer without a database: what it decides is kept instead of written."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from pgoutbox.dispatch.deliver import Deliverer
from pgoutbox.dispatch.finalizer import Finalizer
from pgoutbox.dispatch.flight import InFlight
from tests.support.dispatching import Events, Watched, a_message, to

if TYPE_CHECKING:
    from pgoutbox.destinations.destination import Destination
    from pgoutbox.dispatch.publish import Unclassified
    from pgoutbox.events import Settled
    from pgoutbox.outcome import Outcome
    from pgoutbox.publisher import BatchPublisher, Publisher


class Decided(Finalizer):
    """Keeps what was decided instead of writing it."""

    def __init__(self) -> None:
        self.settled: list[Settled] = []
        self.news = Watched()

    def add(self, settled: Settled) -> None:
        self.settled.append(settled)
        self.news.changed()

    async def so_many(self, count: int) -> list[Settled]:
        """What was decided, once that is so much."""
        await self.news.until(lambda: len(self.settled) >= count)
        return self.settled


class Delivery:
    """A deliverer to one destination, and what becomes of its messages."""

    def __init__(
        self,
        publisher: Publisher | BatchPublisher,
        *,
        retry_unclassified: bool = False,
        concurrency: int = 50,
    ) -> None:
        self.events = Events()
        self.in_flight = InFlight(100)
        self.destination = to(publisher, concurrency=concurrency)
        self.bugs: list[Unclassified] = []
        self.decided = Decided()
        self.retry_unclassified = retry_unclassified
        self.deliverer = Deliverer(
            {"default": self.destination},
            self.in_flight,
            self.decided,
            self.events,
            self._bug,
        )

    def _bug(self, _destination: Destination, error: Unclassified) -> bool:
        self.bugs.append(error)
        return self.retry_unclassified

    def start(self, *ids: int) -> None:
        self.deliverer.start([a_message(id=number) for number in ids], 1e9)

    def cancel(self, number: int, verdict: Outcome) -> None:
        [flight] = [flight for flight in self.in_flight if flight.message.id == number]
        flight.cancel(verdict)

    def abandon(self, number: int) -> None:
        [flight] = [flight for flight in self.in_flight if flight.message.id == number]
        flight.abandon()

    async def ended(self) -> list[Settled]:
        """What was decided, once no publish is running and every slot is free again."""
        async with asyncio.timeout(5):
            await self.deliverer.ended()
            # Those that were abandoned are nobody's concern, but end as well.
            while self.in_flight.publishing:  # noqa: ASYNC110 - a step of the loop at a time
                await asyncio.sleep(0)
        return self.decided.settled
