from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import TYPE_CHECKING

import pytest

from simulation.arrivals import plain, poisson
from simulation.deletion_cost import CHOICES, NAMES, REPLICAS, simulate, table
from simulation.scale_in import ScaleIns
from simulation.shape import Contention, Shape

if TYPE_CHECKING:
    from simulation.pod import Pod
    from simulation.scale_in import Choice

SLOW = Shape(
    name="slow publishes",
    says="",
    duration=400.0,
    arrivals=plain(poisson(lambda _: 0.4, highest=0.4, until=300.0)),
    contention=Contention(sigma=0.0, kappa=0.0),
    service=20.0,
    replicas=8,
)


def started(choice: Choice, *, soft: float = 20.0, shape: Shape = SLOW) -> ScaleIns:
    """After two minutes of work."""
    world = ScaleIns(shape, shape.arrivals(Random(1)), 1, choice=choice, soft=soft)
    world.fleet.begin(shape.replicas)
    world.clock.at(0.0, world._arrive)
    world.clock.at(0.0, world._beat, 0)
    world.clock.run(120.0)
    return world


def victims(world: ScaleIns, count: int) -> list[Pod]:
    before = list(world.fleet.pods)
    world.fleet.scale(len(before) - count)
    return [pod for pod in before if pod not in world.fleet.pods]


def test_the_all_knowing_takes_the_idlest_pods_away() -> None:
    world = started("all-knowing")
    busy = sorted(pod.busy for pod in world.fleet.pods)
    assert busy[0] < busy[-1]
    assert sorted(pod.busy for pod in victims(world, 3)) == busy[:3]


def test_heartbeats_tell_how_busy_a_pod_was_and_not_how_busy_it_is() -> None:
    world = started("by heartbeat")
    told = {pod: world._told[pod] for pod in world.fleet.pods}
    assert any(pod.busy != count for pod, count in told.items())
    assert sorted(told[pod] for pod in victims(world, 3)) == sorted(told.values())[:3]


def test_without_a_cost_pods_that_were_ready_for_half_as_long_go_first() -> None:
    world = started("as it is")
    old = list(world.fleet.pods)
    world.fleet.scale(11)
    world.clock.run(180.0)
    young = [pod for pod in world.fleet.pods if pod not in old]
    assert all(pod.ready for pod in young)
    assert set(victims(world, 3)) == set(young)


def test_what_a_drain_does_not_wait_for_is_published_again_by_somebody_else() -> None:
    world = started("as it is", soft=1.0)
    gone = victims(world, 4)
    assert world.toll.under_way == sum(pod.busy for pod in gone) > 0
    world.clock.run(121.5)
    assert 0 < world.toll.interrupted <= world.toll.under_way
    assert all(pod.gone for pod in gone)
    world.clock.run(1000.0)
    assert world.outbox.undelivered == 0
    assert len(world.toll.latencies) == world.tally.delivered == world._next


def test_a_drain_that_waits_long_enough_interrupts_nothing() -> None:
    world = started("as it is", soft=120.0)
    gone = victims(world, 4)
    world.clock.run(1000.0)
    assert world.toll.interrupted == 0
    assert all(pod.gone for pod in gone)
    assert 0 < world.toll.terminating_seconds < 4 * 120


def test_messages_that_are_ready_are_what_a_pod_could_hand_back() -> None:
    crowded = replace(SLOW, arrivals=plain(poisson(lambda _: 4.0, highest=4.0, until=300.0)))
    world = started("as it is", shape=crowded)
    gone = victims(world, 2)
    assert world.toll.waiting == sum(pod.slots for pod in gone)


@pytest.mark.parametrize("choice", CHOICES)
def test_a_run_is_the_same_each_time(choice: Choice) -> None:
    first, second = (simulate(NAMES[0], REPLICAS[0], choice, 20.0, 1) for _ in range(2))
    assert first == second
    assert f"| {REPLICAS[0]} |" in table([first._replace(choice=each) for each in CHOICES])
