"""Steps 2 and 3 for what was claimed: publish, decide, and pass the transition on."""

from __future__ import annotations

import asyncio
import random
import time
from functools import partial
from typing import TYPE_CHECKING

from pgoutbox.dispatch.ahead import LONGEST_WAIT, Ahead
from pgoutbox.dispatch.decide import decide
from pgoutbox.dispatch.judge import Judge
from pgoutbox.dispatch.publish import Unclassified, describe, publish_all
from pgoutbox.dispatch.runs import Run
from pgoutbox.dispatch.scan import RunLength
from pgoutbox.dispatch.tally import Attempts
from pgoutbox.events import PublisherFailed, Settled
from pgoutbox.outcome import Finish, Published, RetryableFailure, Unstarted
from pgoutbox.publisher import BatchPublisher

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from pgoutbox.destinations.destination import Destination
    from pgoutbox.dispatch.finalizer import Finalizer
    from pgoutbox.dispatch.flight import Flight, InFlight
    from pgoutbox.events import Event
    from pgoutbox.message import ClaimedMessage
    from pgoutbox.outcome import Outcome

LONGEST_RUN = 1.0
"""Seconds after which what is left of a run goes back, so that other lanes have their turn."""


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
        self.destinations = destinations
        self.in_flight = in_flight
        self._finalizer = finalizer
        self._emit = emit
        self._on_unclassified = on_unclassified
        """Called for a bug in a publisher; True: take it for a retryable failure."""
        self.margin = 0.0
        """Nothing is begun so many seconds before its lease ends."""
        self.attempts = Attempts()
        self._judges = {
            name: Judge(one, emit, partial(in_flight.publishing_to, name), self.attempts)
            for name, one in destinations.items()
        }
        self.run_lengths = {name: RunLength() for name in destinations}
        """How many messages of one lane are worth claiming together."""
        # Asked once: looking a protocol up costs more than the rest of a delivery.
        self._batching = {
            name
            for name, destination in destinations.items()
            if isinstance(destination.publisher, BatchPublisher)
        }
        self.ahead = {
            name: Ahead(destination, in_flight, batched=name in self._batching)
            for name, destination in destinations.items()
        }
        """What was claimed before there was a slot for it."""

    def start(self, messages: Sequence[ClaimedMessage], lease_ends: float) -> None:
        """Begin to publish all of them that there are slots for; the others wait for theirs."""
        groups: dict[str, list[Flight]] = {}
        now = time.monotonic()
        for flight in self.in_flight.take(messages, lease_ends, now):
            groups.setdefault(flight.message.destination, []).append(flight)
        for name, flights in groups.items():
            self.ahead[name].put(flights)
            self._begin(name)
            if self.fill(name):
                # By that moment, and not by the clock: timers may be early.
                asyncio.get_running_loop().call_later(LONGEST_WAIT, self._no_longer, name, now)

    def fill(self, name: str) -> int:
        """Begin what waits for a slot of the destination; how many still wait.

        They go back where the destination fails or something limits it.
        """
        ahead = self.ahead[name]
        if ahead and not self.destinations[name].unhindered:
            self._return(ahead.clear())
        self._begin(name)
        return len(ahead)

    def _begin(self, name: str, *, at_once: bool = False) -> None:
        for flights in self.ahead[name].begin(at_once=at_once):
            self._spawn(flights, self.destinations[name])

    def _no_longer(self, name: str, before: float) -> None:
        """What has waited since then begins where it has a slot, or goes back."""
        self.fill(name)
        if self.ahead[name].is_late(before):
            self._begin(name, at_once=True)
            self._return(self.ahead[name].late(before))

    def start_runs(self, runs: Iterable[Sequence[ClaimedMessage]], lease_ends: float) -> None:
        """Begin to publish these lanes, each one message after the other."""
        now = time.monotonic()
        self._step([Run(self.in_flight.take(messages, lease_ends, now)) for messages in runs])

    def hand_back(self, messages: Sequence[ClaimedMessage], lease_ends: float) -> None:
        """They were claimed, but are not to be started: refund and release."""
        self._return(self.in_flight.take(messages, lease_ends, time.monotonic()))

    def hand_back_waiting(self) -> None:
        """Refund and release what waits for a slot, or behind another message of its lane."""
        for ahead in self.ahead.values():
            self._return(ahead.clear())
        for run in self.in_flight.runs():
            self._return(run.stop())

    def stop_lanes(self, messages: Iterable[ClaimedMessage]) -> None:
        """Publish nothing further of the lanes of these: somebody else may own them by now.

        Called before they are released. What is under way is cancelled, alone as it is; a batch
        with messages of other lanes is not.
        """
        for run in self.in_flight.runs_of(messages):
            self._return(run.stop())
            current = run.current
            if current is not None and current.publishing and len(current.companions) == 1:
                current.cancel(RetryableFailure("cancelled: its lane is no longer ours"))

    async def ended(self) -> None:
        """Return once no publish is running whose outcome matters."""
        while tasks := self.in_flight.awaited:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            # Of what has ended the slots are freed in its callbacks, and those need a turn.
            await asyncio.sleep(0)

    def _spawn(self, flights: Sequence[Flight], destination: Destination) -> None:
        task = asyncio.get_running_loop().create_task(
            self._deliver(flights, destination), name=destination.name
        )
        self.in_flight.depart(flights, task)
        now = time.monotonic()
        for flight in flights:
            flight.started = now
        destination.began(len(flights), now)
        task.add_done_callback(self._ended)

    def _step(self, runs: Iterable[Run]) -> None:
        """The next message of each run. A batch has one of each, so that none overtakes another.

        Reclaimed heads may be for several destinations.
        """
        steps: dict[str, list[Flight]] = {}
        for run in runs:
            if (flight := run.next()) is not None:
                steps.setdefault(flight.message.destination, []).append(flight)
        for name, flights in steps.items():
            for step in [flights] if name in self._batching else [[one] for one in flights]:
                self._spawn(step, self.destinations[name])

    def _ended(self, task: asyncio.Task[None]) -> None:
        flights = self.in_flight.landed(task)
        name = flights[0].message.destination
        self.ahead[name].observe(time.monotonic() - flights[0].started)
        self._conclude(task, flights)
        going_on = [run for flight in flights if (run := self._goes_on(flight)) is not None]
        if going_on:
            self._step(going_on)
        self.fill(name)
        self.in_flight.on_change()

    def _goes_on(self, flight: Flight) -> Run | None:
        """Its run, if the message was taken and nothing else speaks against the next one."""
        if flight.run is None:
            return None
        destination = self.destinations[flight.message.destination]
        now = time.monotonic()
        lasted = now - flight.run.began
        if (
            flight.finished
            and not destination.stopped
            and destination.within_rate(now)
            and lasted < LONGEST_RUN
            and self._in_time(flight.run.waiting)
        ):
            return flight.run
        self._return(flight.run.stop())
        return None

    def _conclude(self, task: asyncio.Task[None], flights: Sequence[Flight]) -> None:
        if task.cancelled():
            # Before its first step, so that nothing of it ran.
            self._cancelled(flights)
        elif error := task.exception():
            # A bug of our own. It is told like a publisher's, so that it cannot pass unnoticed.
            self._bug([f for f in flights if f.publishing], Unclassified(describe(error)), error)

    def _in_time(self, flights: Iterable[Flight]) -> bool:
        latest = time.monotonic() + self.margin
        return all(flight.lease_ends > latest for flight in flights)

    async def _deliver(self, flights: Sequence[Flight], destination: Destination) -> None:
        if not self._in_time(flights):
            # A publish that does not let others run has kept this one waiting for too long.
            self._return([flight for flight in flights if flight.publishing])
            return
        try:
            outcomes = await publish_all(
                [flight.message for flight in flights],
                destination.publisher,
                batched=destination.name in self._batching,
            )
        except asyncio.CancelledError:
            if any(flight.verdict or flight.abandoned for flight in flights):
                self._cancelled(flights)
            else:
                error = Unclassified("the publisher cancelled its own task")
                self._bug(flights, error, error)
        except Unclassified as error:
            if flights[0].verdict is not None:
                # A client that turns our cancellation into an error of its own.
                self._cancelled(flights)
            else:
                self._bug(flights, error, error.__cause__ or error)
        else:
            for flight, outcome in zip(flights, outcomes, strict=True):
                self._observed(flight, outcome)

    def _observed(self, flight: Flight, outcome: Outcome | Unclassified) -> None:
        judge = self._judges[flight.message.destination]
        match outcome:
            case Published():
                self._settle(flight, judge.judge(flight.message, outcome))
            case _ if flight.verdict is not None:
                # Cancelled by us, so an error is no news about the destination; success is.
                self._settle_verdict(flight, flight.verdict)
            case Unclassified():
                self._bug([flight], outcome, outcome.__cause__ or outcome)
            case _:
                self._settle(flight, judge.judge(flight.message, outcome))

    def _settle_verdict(self, flight: Flight, verdict: Outcome) -> None:
        if isinstance(verdict, RetryableFailure) and verdict.timed_out:
            # Of why we cancel, this alone is the destination's doing.
            verdict = self._judges[flight.message.destination].judge(flight.message, verdict)
        self._settle(flight, verdict)

    def _cancelled(self, flights: Sequence[Flight]) -> None:
        for flight in flights:
            if flight.verdict is None:
                self.in_flight.release([flight.message])
            else:
                self._settle_verdict(flight, flight.verdict)

    def _bug(self, flights: Sequence[Flight], error: Unclassified, cause: BaseException) -> None:
        if not flights:
            return
        first = flights[0].message
        self._emit(PublisherFailed(first, cause))
        self._judges[first.destination].bug(len(flights))
        if self._on_unclassified(self.destinations[first.destination], error):
            for flight in flights:
                self._settle(flight, RetryableFailure(f"unclassified: {error}"))
            return
        # The rows keep their lease: the attempt stays spent, and the limit holds.
        self.in_flight.release(flight.message for flight in flights)

    def _settle(self, flight: Flight, outcome: Outcome) -> None:
        if flight.abandoned:
            return
        settled = self._decide(flight, outcome)
        flight.finished = isinstance(settled.transition, Finish)
        if flight.run is None:
            self._finalizer.add(settled)
            return
        self.run_lengths[flight.message.destination].observe(settled.seconds)
        # A failure and what waits behind it are written together, so that nobody can claim the lane
        # while part of it is still held here.
        behind = [] if flight.finished else flight.run.stop()
        self._finalizer.add(settled)
        self._return(behind)

    def _return(self, flights: Sequence[Flight]) -> None:
        for flight in flights:
            self._finalizer.add(self._decide(flight, Unstarted()))

    def _decide(self, flight: Flight, outcome: Outcome) -> Settled:
        message = flight.message
        policy = self.destinations[message.destination].policy
        transition = decide(outcome, message, policy, random.random())  # noqa: S311 - jitter
        flight.settled = True
        seconds = time.monotonic() - flight.started
        return Settled(message, outcome, transition, flight.started, seconds)
