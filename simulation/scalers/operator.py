"""The operator's own law, with a world for a database and a cluster."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from pgoutbox_operator.scaling import (
    Fleet,
    Outbox,
    Policy,
    Sample,
    State,
    Worker,
    decide,
    open_destinations,
)

if TYPE_CHECKING:
    from pgoutbox_operator.scaling import Decision
    from simulation.shape import Shape
    from simulation.world import World


class OperatorScaler:
    """Keeps every decision, for those who want to know why."""

    name = "pgoutbox"
    reads_heartbeats = True

    def __init__(self, shape: Shape, policy: Policy | None = None) -> None:
        self.policy = policy or Policy(
            min_replicas=shape.min_replicas,
            max_replicas=shape.max_replicas,
            startup=shape.startup,
            seed_rate=shape.seed_rate,
        )
        self.decisions: list[tuple[float, Decision]] = []
        self._state = State()
        self._restarts = [] if shape.restart_at is None else [shape.restart_at]

    def look(self, world: World) -> float:
        """One tick."""
        now = world.clock.now
        if self._restarts and now >= self._restarts[0]:
            self._restarts.pop()
            self._state = State()
        skew = world.shape.skew
        told = now + (skew[1] if skew is not None and now >= skew[0] else 0.0)
        self._state, decision = decide(
            self._state, _sample(world, self.policy), told, policy=self.policy
        )
        self.decisions.append((now, decision))
        world.fleet.scale(decision.replicas)
        return now + self.policy.next_tick(decision.replicas)


def _sample(world: World, policy: Policy) -> Sample:
    fleet = Fleet(replicas=world.fleet.replicas, terminating=len(world.fleet.draining))
    return Sample(fleet=fleet, outbox=None if world.database_away else _outbox(world, policy.stale))


def _outbox(world: World, fresh: float) -> Outbox:
    now, outbox = world.clock.now, world.outbox
    workers = tuple(_workers(world, now))
    opened = {int(name) for name in open_destinations(workers, fresh=fresh)}
    return Outbox(
        at=now,
        ready=world.noisy(outbox.ready(opened)),
        oldest_ready_age=outbox.oldest_ready_age(now, opened),
        undelivered=world.noisy(outbox.undelivered),
        scheduled=outbox.scheduled,
        next_due_in=outbox.next_due_in(now),
        lanes=(outbox.parallel() or None) if world.shape.ordered else None,
        workers=workers,
    )


def _workers(world: World, now: float) -> list[Worker]:
    return [
        dataclasses.replace(pod.told, seen_age=now - pod.told_at)
        for pod in world.fleet.ready
        if pod.told is not None
    ]
