"""The walk of messages through the fleet."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

from simulation.clock import Clock
from simulation.downstream import Downstream
from simulation.failing import delay_after_failure
from simulation.fleet import Fleet
from simulation.messages import Message
from simulation.outbox import Outbox
from simulation.shape import OBJECTIVE
from simulation.tally import Point, Result, Tally

if TYPE_CHECKING:
    from collections.abc import Sequence

    from simulation.messages import Arrival
    from simulation.pod import Pod
    from simulation.scaler import Scaler
    from simulation.shape import Shape

REFUSED_AFTER = 0.5
"""Seconds that a refusal takes."""
BEAT_SECONDS = 10.0
BEAT_PARTS = 4
"""Pods do not all beat at the same moment."""
POINT_SECONDS = 15.0


class World:
    """One shape, one scaler, one seed."""

    def __init__(self, shape: Shape, arrivals: Sequence[Arrival], seed: int) -> None:
        self.shape = shape
        self.seed = seed
        self.clock = Clock()
        self.outbox = Outbox(shape.destinations)
        self.tally = Tally(OBJECTIVE)
        self.fleet = Fleet(shape, self.clock, self.tally, seed, shape.slots)
        self.rng = random.Random(seed + 1)  # noqa: S311 - a simulation
        self._arrivals = arrivals
        self._next = 0
        self._plotted = 0
        self._downstream = Downstream(service=shape.service, faults=shape.faults, seed=seed + 2)
        self._spare: list[dict[Pod, None]] = [{} for _ in range(shape.destinations)]
        """For each destination, pods with a free slot and a closed breaker."""
        self._simple = shape.destinations == 1 and not shape.failing
        self._busy = 0
        self.database_away = False
        self._unrecorded: list[tuple[Pod, Message, bool]] = []
        self._slowdown = shape.contention.slowdown(4 * shape.max_replicas, shape.slots)
        self._single = self.outbox.queues[0]
        self.fleet.on_ready, self.fleet.on_drain = self._joined, self._leave

    def run(self, scaler: Scaler) -> Result:
        """To the end of the shape."""
        shape, clock = self.shape, self.clock
        self.fleet.begin(shape.replicas)
        if self._arrivals:
            clock.at(self._arrivals[0].at, self._arrive)
        if scaler.reads_heartbeats:
            clock.at(0.0, self._beat, 0)
        clock.at(0.0, self._plot)
        clock.at(0.0, self._look, scaler)
        if shape.rollout_at is not None:
            clock.at(shape.rollout_at, self.fleet.roll_out)
        if shape.database_away is not None:
            begin, end = shape.database_away
            clock.at(begin, self._database_goes)
            clock.at(end, self._database_comes)
        clock.run(shape.duration)
        return self._result(scaler.name)

    def noisy(self, count: int) -> int:
        """As a scaler sees it."""
        if not self.shape.noise:
            return count
        return max(0, round(count * (1 + self.rng.uniform(-self.shape.noise, self.shape.noise))))

    def _arrive(self) -> None:
        arrival = self._arrivals[self._next]
        self._next += 1
        at, number, lane, poison = arrival
        if self._next < len(self._arrivals):
            self.clock.at(self._arrivals[self._next].at, self._arrive)
        outbox = self.outbox
        message = Message(self._next, at, number, outbox.lane(lane), poison, at)
        outbox.put(message)
        self._place(number)

    def _place(self, destination: int) -> None:
        """What just became ready, to whoever has a slot for it."""
        spare, queue = self._spare[destination], self.outbox.queues[destination]
        if spare and queue and not self.database_away:
            self._begin(next(iter(spare)), queue.popleft())

    def _fill(self, pod: Pod) -> None:
        while pod.busy < pod.slots and not self.database_away:
            message = self._take(pod)
            if message is None:
                return
            self._begin(pod, message)

    def _database_goes(self) -> None:
        self.database_away = True

    def _database_comes(self) -> None:
        self.database_away = False
        for unrecorded in self._unrecorded:
            self._recorded(*unrecorded)
        self._unrecorded.clear()
        for pod in self.fleet.ready:
            self._fill(pod)

    def _take(self, pod: Pod) -> Message | None:
        if self._simple:
            return self._single.popleft() if self._single else None
        now, queues = self.clock.now, self.outbox.queues
        count = len(queues)
        for step in range(count):
            number = (pod.turn + step) % count
            if queues[number]:
                breaker, publishing = pod.breakers[number], pod.publishing[number]
                free = pod.slots - publishing
                if not breaker.is_open or breaker.allowance(free, publishing, now) > 0:
                    return queues[number].popleft()
        return None

    def _begin(self, pod: Pod, message: Message) -> None:
        """It takes a slot."""
        pod.busy += 1
        pod.busy_before -= self.clock.now
        if pod.busy == pod.slots:
            self._leave(pod)
        self._busy += 1
        self._publish(pod, message)

    def _publish(self, pod: Pod, message: Message) -> None:
        clock = self.clock
        self.outbox.processing += 1
        message.attempts += 1
        pod.publishing[message.destination] += 1
        if message.poison:
            seconds, good = REFUSED_AFTER, True
        elif self._simple:
            seconds, good = self._downstream.seconds(message.row), True
        else:
            seconds, good = self._downstream.attempt(clock.now, message.row, message.destination)
        seconds *= self._slowdown[self._busy]
        clock.at(clock.now + seconds, self._done, pod, message, good)

    def _done(self, pod: Pod, message: Message, good: bool) -> None:  # noqa: FBT001 - an event's
        now = self.clock.now
        if good and not message.poison:
            self.tally.delivered_after(now - message.created)
        if self.database_away:
            # It is recorded when it can be; the slot is taken until then.
            self._unrecorded.append((pod, message, good))
        else:
            self._recorded(pod, message, good)

    def _recorded(self, pod: Pod, message: Message, good: bool) -> None:  # noqa: FBT001 - an event's
        self.outbox.processing -= 1
        pod.publishing[message.destination] -= 1
        pod.turn += 1
        if good:
            pod.finished += 1
            pod.attempts += 1
            self.outbox.finished(message)
            opened = not self._simple and self._reached(pod, message)
        else:
            self._failed(pod, message)
            opened = False
        following = None if pod.draining else self._take(pod)
        if following is not None:
            self._publish(pod, following)
        else:
            self._rests(pod)
            if pod.draining and message.lane is not None:
                self._place(message.destination)
        if opened and not pod.draining:
            self._fill(pod)
            if pod.busy < pod.slots:
                self._offer(pod)

    def _reached(self, pod: Pod, message: Message) -> bool:
        """A success; whether it closed the breaker. A refusal says nothing."""
        if message.poison:
            return False
        breaker = pod.breakers[message.destination]
        opened = breaker.is_open
        breaker.reached(self.clock.now)
        return opened

    def _failed(self, pod: Pod, message: Message) -> None:
        now, tally = self.clock.now, self.tally
        tally.failed_calls += 1
        if not pod.breakers[message.destination].is_open:
            pod.attempts += 1
            pod.failed += 1
        delay = delay_after_failure(pod, message, now, self.rng.random())
        if delay is None:
            tally.late += 1
            pod.finished += 1
            self.outbox.finished(message)
        else:
            message.due = now + delay
            self.outbox.put_off(message)
            self.clock.at(message.due, self._due, message)
        wait = pod.breakers[message.destination].half_opens_in(now)
        if wait:
            self._spare[message.destination].pop(pod, None)
            self.clock.at(now + wait + 1e-6, self._probe, pod)

    def _probe(self, pod: Pod) -> None:
        if pod.ready and not pod.draining:
            self._fill(pod)

    def _due(self, message: Message) -> None:
        self.outbox.due(message)
        self._place(message.destination)

    def _rests(self, pod: Pod) -> None:
        pod.busy -= 1
        pod.busy_before += self.clock.now
        self._busy -= 1
        if not pod.draining:
            self._offer(pod)
        elif not pod.busy:
            self.fleet.gone(pod)

    def _offer(self, pod: Pod) -> None:
        """It has a free slot."""
        for spare, breaker in zip(self._spare, pod.breakers, strict=True):
            if not breaker.is_open:
                spare[pod] = None

    def _leave(self, pod: Pod) -> None:
        """It has none."""
        for spare in self._spare:
            spare.pop(pod, None)

    def _joined(self, pod: Pod) -> None:
        self._offer(pod)
        pod.beat(self.clock.now)
        self._fill(pod)

    def _look(self, scaler: Scaler) -> None:
        self.clock.at(scaler.look(self), self._look, scaler)

    def _beat(self, part: int) -> None:
        if not self.database_away:
            for pod in self.fleet.pods:
                if pod.ready and pod.number % BEAT_PARTS == part:
                    pod.beat(self.clock.now)
        seconds = BEAT_SECONDS / BEAT_PARTS
        self.clock.at(self.clock.now + seconds, self._beat, (part + 1) % BEAT_PARTS)

    def _plot(self) -> None:
        now, outbox = self.clock.now, self.outbox
        self.tally.points.append(
            Point(
                now,
                self.fleet.replicas,
                len(self.fleet.ready),
                outbox.undelivered,
                outbox.oldest_ready_age(now, set()),
                (self._next - self._plotted) / POINT_SECONDS,
            )
        )
        self._plotted = self._next
        self.clock.at(now + POINT_SECONDS, self._plot)

    def _result(self, scaler: str) -> Result:
        self.fleet.end()
        tally, now = self.tally, self.clock.now
        poisoned = sum(1 for arrival in self._arrivals if arrival.poison)
        owed = max(1, len(self._arrivals) - poisoned)
        # What should have been delivered by now and is not is as late as what came late.
        due = sum(1 for a in self._arrivals if not a.poison and a.at < now - tally.objective)
        never = max(0, due - tally.delivered)
        return Result(
            self.shape.name,
            scaler,
            self.seed,
            100 * min(tally.late + never, owed) / owed,
            tally.pod_seconds / 3600,
            tally.reversals,
            tally.failed_calls,
            self.outbox.undelivered,
            tuple(tally.points),
        )
