"""Steps 2 and 3 for what was claimed: publish, decide, and pass the transition on."""

from __future__ import annotations

import asyncio
import random
import time
from functools import partial
from typing import TYPE_CHECKING, Any, cast

from pgoutbox.dispatch.decide import decide
from pgoutbox.dispatch.publish import Unclassified, describe, publish, publish_batch
from pgoutbox.events import PublisherFailed, Settled
from pgoutbox.outcome import RetryableFailure, Unavailable, Unstarted
from pgoutbox.publisher import BatchPublisher

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Mapping, Sequence

    from pgoutbox.dispatch.finalizer import Finalizer
    from pgoutbox.dispatch.flight import Destination, Flight, InFlight
    from pgoutbox.events import Event
    from pgoutbox.message import ClaimedMessage
    from pgoutbox.outcome import Outcome
    from pgoutbox.publisher import Publisher


class Deliverer:
    """Starts a task per message, or per batch where the publisher takes batches."""

    def __init__(
        self,
        destinations: Mapping[str, Destination],
        in_flight: InFlight,
        finalizer: Finalizer,
        emit: Callable[[Event], None],
        on_unclassified: Callable[[Destination, Unclassified], bool],
    ) -> None:
        self._destinations = destinations
        self._in_flight = in_flight
        self._finalizer = finalizer
        self._emit = emit
        self._on_unclassified = on_unclassified
        """Called for a bug in a publisher; True: take it for a retryable failure."""
        # Asked once: looking a protocol up costs more than the rest of a delivery.
        self._batching = {
            name
            for name, destination in destinations.items()
            if isinstance(destination.publisher, BatchPublisher)
        }
        self._tasks: set[asyncio.Task[None]] = set()

    def start(self, messages: Sequence[ClaimedMessage], lease_ends: float) -> None:
        """Begin to publish all of them."""
        flights = self._in_flight.take(messages, lease_ends, time.monotonic())
        batches: dict[str, list[Flight]] = {}
        for flight in flights:
            name = flight.message.destination
            if name in self._batching:
                batches.setdefault(name, []).append(flight)
            else:
                destination = self._destinations[name]
                self._spawn(self._deliver(flight, destination), destination, [flight])
        for name, batch in batches.items():
            destination = self._destinations[name]
            self._spawn(self._deliver_batch(batch, destination), destination, batch)

    def hand_back(self, messages: Sequence[ClaimedMessage], lease_ends: float) -> None:
        """They were claimed, but are not to be started any more: refund and release."""
        for flight in self._in_flight.take(messages, lease_ends, time.monotonic()):
            self._in_flight.landed(flight.message.destination)
            self._settle(flight, Unstarted())

    async def ended(self) -> None:
        """Return once no publish is running."""
        while self._tasks:
            await asyncio.wait(self._tasks)

    def _spawn(
        self,
        coroutine: Coroutine[Any, Any, None],
        destination: Destination,
        flights: list[Flight],
    ) -> None:
        task = asyncio.get_running_loop().create_task(coroutine, name=destination.name)
        self._tasks.add(task)
        task.add_done_callback(partial(self._ended, destination, flights))
        for flight in flights:
            flight.task = task
            flight.shared = len(flights) > 1

    def _ended(
        self, destination: Destination, flights: list[Flight], task: asyncio.Task[None]
    ) -> None:
        self._tasks.discard(task)
        if task.cancelled():
            # Before its first step, so that nothing of it ran.
            self._cancelled(flights)
            self._in_flight.landed(destination.name, len(flights))
        elif error := task.exception():
            # A bug of our own. It is told like a publisher's, so that it cannot pass unnoticed.
            self._emit(PublisherFailed(flights[0].message, error))
            self._on_unclassified(destination, Unclassified(describe(error)))
            self._in_flight.release(flight.message for flight in flights if not flight.settled)

    async def _deliver(self, flight: Flight, destination: Destination) -> None:
        publisher = cast("Publisher", destination.publisher)
        try:
            outcome = await publish(flight.message, publisher)
        except asyncio.CancelledError:
            self._cancelled([flight])
        except Unclassified as error:
            self._unclassified([flight], destination, error)
        else:
            self._observed(flight, destination, outcome)
        finally:
            self._in_flight.landed(destination.name)

    async def _deliver_batch(self, batch: list[Flight], destination: Destination) -> None:
        publisher = cast("BatchPublisher", destination.publisher)
        messages = [flight.message for flight in batch]
        try:
            outcomes = await publish_batch(messages, publisher)
        except asyncio.CancelledError:
            self._cancelled(batch)
        except Unclassified as error:
            self._unclassified(batch, destination, error)
        else:
            for flight, outcome in zip(batch, outcomes, strict=True):
                self._observed(flight, destination, outcome)
        finally:
            self._in_flight.landed(destination.name, len(batch))

    def _observed(self, flight: Flight, destination: Destination, outcome: Outcome) -> None:
        if isinstance(outcome, Unavailable):
            works = destination.reachability.unreached(flight.message.id, time.monotonic())
            outcome = Unavailable(outcome.error, works_for_others=works)
        else:
            destination.reachability.reached()
        self._settle(flight, outcome)

    def _cancelled(self, flights: list[Flight]) -> None:
        # One verdict cancels the whole batch; what has none of its own shares it.
        verdict = next((flight.verdict for flight in flights if flight.verdict is not None), None)
        for flight in flights:
            if flight.abandoned:
                continue
            if verdict is None:
                self._in_flight.release([flight.message])
                continue
            self._settle(flight, flight.verdict or verdict)

    def _unclassified(
        self, flights: list[Flight], destination: Destination, error: Unclassified
    ) -> None:
        self._emit(PublisherFailed(flights[0].message, error.__cause__ or error))
        if self._on_unclassified(destination, error):
            for flight in flights:
                self._settle(flight, RetryableFailure(f"unclassified: {error}"))
            return
        # The rows keep their lease: the attempt stays spent, and the limit holds.
        self._in_flight.release(flight.message for flight in flights)

    def _settle(self, flight: Flight, outcome: Outcome) -> None:
        if flight.abandoned:
            return
        message = flight.message
        policy = self._destinations[message.destination].policy
        transition = decide(outcome, message, policy, random.random())  # noqa: S311 - jitter
        flight.settled = True
        seconds = time.monotonic() - flight.started
        self._finalizer.add(Settled(message, outcome, transition, flight.started, seconds))
