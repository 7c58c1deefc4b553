"""What a scale-in does to what is under way, with the pods that Kubernetes picks or with idle ones.

A picked pod begins nothing more, and what it still publishes after a worker's time to drain is
interrupted: somebody else publishes it once more.
"""

from __future__ import annotations

import math
import random
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, TypeAlias

from simulation.world import World

if TYPE_CHECKING:
    from collections.abc import Sequence

    from simulation.messages import Arrival, Message
    from simulation.pod import Pod
    from simulation.shape import Shape

Choice: TypeAlias = Literal["as it is", "as it is, again", "by heartbeat", "all-knowing"]
"""What the pods' deletion costs say: nothing, twice with other pods' names; how many messages each
held at its last heartbeat; how many it holds now, which nobody can know.
"""


@dataclass(slots=True)
class Toll:
    """What scale-ins took."""

    pods: int = 0
    """Ready ones that had to go."""
    under_way: int = 0
    """Messages that they were publishing."""
    waiting: int = 0
    """The part of a pod in what was ready when it had to go: it can hand back no more."""
    interrupted: int = 0
    terminating_seconds: float = 0.0
    latencies: list[float] = field(default_factory=list)
    """Of all deliveries."""


class ScaleIns(World):
    """Counts what scale-ins take."""

    def __init__(
        self, shape: Shape, arrivals: Sequence[Arrival], seed: int, *, choice: Choice, soft: float
    ) -> None:
        """``soft``: seconds that a drain waits for what is under way."""
        super().__init__(shape, arrivals, seed)
        self.toll = Toll()
        self._names = seed + 1000 * (choice == "as it is, again")
        self._choice = choice
        self._soft = soft
        self._claims = random.Random(seed + 3)  # noqa: S311 - a simulation
        self._told: dict[Pod, int] = {}
        self._under_way: dict[Pod, set[Message]] = {}
        self._drained_at: dict[Pod, float] = {}
        self.fleet.rank = self._rank
        self.fleet.on_drain = self._drains

    def _rank(self, pod: Pod) -> tuple[float, ...]:
        """As the ReplicaSet's: by the cost, by how often its age has doubled, by its name."""
        cost = {"by heartbeat": self._told.get(pod, 0), "all-knowing": pod.busy}
        age = max(1e-9, self.clock.now - pod.started)
        name = random.Random(f"{self._names} {pod.number}").random()  # noqa: S311 - a simulation
        return cost.get(self._choice, 0), math.floor(math.log2(age)), name

    def _place(self, destination: int) -> None:
        """Whoever has a free slot may be the first to claim it."""
        spare, queue = self._spare[destination], self.outbox.queues[destination]
        if spare and queue:
            self._begin(self._claims.choice(list(spare)), queue.popleft())

    def _beat(self, part: int) -> None:
        super()._beat(part)
        for pod in self.fleet.pods:
            if pod.told_at == self.clock.now:
                self._told[pod] = pod.busy

    def _publish(self, pod: Pod, message: Message) -> None:
        self._under_way.setdefault(pod, set()).add(message)
        super()._publish(pod, message)

    def _done(self, pod: Pod, message: Message, good: bool) -> None:  # noqa: FBT001 - an event's
        under_way = self._under_way[pod]
        if message in under_way:
            under_way.remove(message)
            self.toll.latencies.append(self.clock.now - message.created)
            super()._done(pod, message, good)

    def _rests(self, pod: Pod) -> None:
        super()._rests(pod)
        if pod.gone:
            self.toll.terminating_seconds += self.clock.now - self._drained_at[pod]

    def _drains(self, pod: Pod) -> None:
        self._leave(pod)
        self._drained_at[pod] = self.clock.now
        if pod.ready:
            self.toll.pods += 1
            self.toll.under_way += pod.busy
            each = math.ceil(len(self._single) / (len(self.fleet.pods) + 1))
            self.toll.waiting += min(each, pod.slots)
            self.clock.at(self.clock.now + self._soft, self._interrupt, pod)

    def _interrupt(self, pod: Pod) -> None:
        under_way = self._under_way.get(pod, set())
        for message in sorted(under_way, key=lambda message: message.row):
            self.toll.interrupted += 1
            under_way.remove(message)
            self.outbox.processing -= 1
            pod.publishing[message.destination] -= 1
            self._rests(pod)
            self.outbox.queues[message.destination].appendleft(message)
            self._place(message.destination)
