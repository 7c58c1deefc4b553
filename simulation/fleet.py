"""The Deployment: pods that start, work, drain and go."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

from pgoutbox.destinations.breaker import Breaker
from simulation.pod import Pod

if TYPE_CHECKING:
    from collections.abc import Callable

    from simulation.clock import Clock
    from simulation.shape import Shape
    from simulation.tally import Tally

STARTUP_SPREAD = 0.15
"""Sigma of the lognormal startup times."""
SURGE = 0.25


class Fleet:
    """``pods`` are those that exist and are not asked to go."""

    def __init__(self, shape: Shape, clock: Clock, tally: Tally, seed: int, slots: int) -> None:
        self.pods: list[Pod] = []
        self.draining: list[Pod] = []
        self.replicas = 0
        self.on_ready: Callable[[Pod], None] = lambda _: None
        self.on_drain: Callable[[Pod], None] = lambda _: None
        self.rank: Callable[[Pod], tuple[float, ...]] = lambda pod: (-pod.created,)
        """Of pods that are alike ready, the least goes first: here the newest."""
        self._shape = shape
        self._clock = clock
        self._tally = tally
        self._slots = slots
        self._rng = random.Random(seed)  # noqa: S311 - a simulation
        self._made = 0

    def begin(self, replicas: int) -> None:
        """These are there already."""
        self.replicas = replicas
        for _ in range(replicas):
            pod = self._create()
            self._ready(pod)

    def scale(self, replicas: int) -> None:
        """What a write to ``spec.replicas`` does."""
        if replicas == self.replicas:
            return
        self._tally.scaled(self.replicas, replicas)
        self.replicas = replicas
        while len(self.pods) < replicas:
            self._start()
        for pod in self._victims(len(self.pods) - replicas):
            self.drain(pod)

    def roll_out(self) -> None:
        """Replace every pod, a quarter at a time, each after its successor is ready."""
        self._replace([pod for pod in self.pods if not pod.draining])

    @property
    def ready(self) -> list[Pod]:
        """Those that work."""
        return [pod for pod in self.pods if pod.ready]

    def drain(self, pod: Pod) -> None:
        """It takes nothing more and goes when it is done."""
        if pod not in self.pods:
            return
        self.pods.remove(pod)
        pod.draining = True
        self.on_drain(pod)
        if pod.busy:
            self.draining.append(pod)
        else:
            self.gone(pod)

    def gone(self, pod: Pod) -> None:
        """It has nothing left to do."""
        pod.gone = True
        self._tally.pod_seconds += self._clock.now - pod.created
        if pod in self.draining:
            self.draining.remove(pod)

    def end(self) -> None:
        """Account for those that are still there."""
        for pod in (*self.pods, *self.draining):
            self._tally.pod_seconds += self._clock.now - pod.created

    def _victims(self, count: int) -> list[Pod]:
        # As a ReplicaSet does: those that are not ready first.
        order = sorted(self.pods, key=lambda pod: (pod.ready, *self.rank(pod)))
        return order[: max(0, count)]

    def _create(self) -> Pod:
        self._made += 1
        count = self._shape.destinations
        pod = Pod(
            number=self._made,
            created=self._clock.now,
            slots=self._slots,
            breakers=[Breaker() for _ in range(count)],
            publishing=[0] * count,
        )
        self.pods.append(pod)
        return pod

    def _start(self) -> Pod:
        pod = self._create()
        seconds = self._shape.startup * self._rng.lognormvariate(0.0, STARTUP_SPREAD)
        self._clock.at(self._clock.now + seconds, self._ready, pod)
        return pod

    def _ready(self, pod: Pod) -> None:
        if pod.draining:
            return
        pod.ready = True
        pod.started = self._clock.now
        # `busy_before` is less busy * now, and it is not busy.
        self.on_ready(pod)

    def _replace(self, old: list[Pod]) -> None:
        if not old:
            return
        batch = max(1, int(len(old) * SURGE))
        fresh = [self._start() for _ in old[:batch]]
        self._clock.at(self._clock.now + 1.0, self._retire, old[:batch], fresh, old[batch:])

    def _retire(self, batch: list[Pod], fresh: list[Pod], left: list[Pod]) -> None:
        if any(not pod.ready and not pod.gone for pod in fresh):
            self._clock.at(self._clock.now + 1.0, self._retire, batch, fresh, left)
            return
        for pod in batch[: max(0, len(self.pods) - self.replicas)]:
            self.drain(pod)
        self._replace([pod for pod in left if not pod.draining])
