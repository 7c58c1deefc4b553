from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import TYPE_CHECKING

import pytest

from simulation.arrivals import hot_key, plain, poisoned, poisson, shared
from simulation.downstream import Fault
from simulation.one import simulate
from simulation.scalers.baselines import DepthScaler, Fixed
from simulation.scalers.operator import OperatorScaler
from simulation.shape import RATE, Contention, Shape
from simulation.shapes import SHAPES
from simulation.world import World

if TYPE_CHECKING:
    from simulation.pod import Pod

ALONE = Contention(sigma=0.0, kappa=0.0)
FIVE_PER_SECOND = poisson(lambda _: 5.0, highest=5.0, until=600.0)
STEADY = Shape(
    name="steady",
    says="",
    duration=700.0,
    arrivals=plain(FIVE_PER_SECOND),
    contention=ALONE,
    replicas=8,
)
LONG_AFTER = replace(STEADY, duration=4000.0, failing=True)


def test_the_same_seed_makes_the_same_history() -> None:
    first, second = (simulate(STEADY, OperatorScaler(STEADY), 7) for _ in range(2))
    assert first == second


def test_a_fleet_that_is_large_enough_is_never_late() -> None:
    result = simulate(STEADY, Fixed(8), 1)
    assert (result.late_percent, result.left, result.failed_calls) == (0.0, 0, 0)
    assert result.replica_hours == pytest.approx(8 * 700 / 3600)


def test_a_fleet_gets_as_much_through_as_its_replicas_are_able_to() -> None:
    shape = replace(STEADY, duration=600.0, replicas=3)
    result = simulate(shape, Fixed(3), 1)
    delivered = len(shape.arrivals(Random(1))) - result.left
    assert delivered == pytest.approx(3 * RATE * 600, rel=0.05)
    assert result.late_percent > 50


def test_replicas_that_contend_get_less_through() -> None:
    crowd = replace(STEADY, duration=600.0, contention=Contention(sigma=0.2, kappa=0.05))
    assert simulate(crowd, Fixed(8), 1).left > simulate(STEADY, Fixed(8), 1).left + 100


@pytest.mark.parametrize(
    "shape",
    [
        replace(LONG_AFTER, faults=(Fault(begin=100.0, end=300.0),)),
        replace(LONG_AFTER, faults=(Fault(begin=100.0, end=300.0, accepts=2.0),)),
        replace(LONG_AFTER, database_away=(100.0, 300.0), failing=False),
        replace(
            LONG_AFTER,
            arrivals=shared(FIVE_PER_SECOND, destinations=3),
            destinations=3,
            faults=(Fault(begin=100.0, end=300.0, destination=1),),
        ),
        replace(LONG_AFTER, arrivals=poisoned(FIVE_PER_SECOND, begin=100.0, end=300.0, share=0.3)),
        replace(
            LONG_AFTER,
            arrivals=hot_key(FIVE_PER_SECOND, FIVE_PER_SECOND, keys=20),
            ordered=True,
            failing=False,
            duration=9000.0,
        ),
        replace(LONG_AFTER, rollout_at=200.0, failing=False),
    ],
    ids=["dead", "slow", "database", "one of three", "poison", "hot key", "rollout"],
)
def test_every_message_is_delivered_in_the_end_whatever_happened(shape: Shape) -> None:
    for scaler in (OperatorScaler(shape), DepthScaler(shape, 10.0)):
        assert simulate(shape, scaler, 3).left == 0


def test_a_lane_keeps_one_slot_busy_at_most() -> None:
    never = poisson(lambda _: 0.0, highest=1.0, until=600.0)
    shape = replace(
        STEADY, arrivals=hot_key(never, FIVE_PER_SECOND, keys=1), ordered=True, duration=600.0
    )
    result = simulate(shape, Fixed(8), 1)
    delivered = len(shape.arrivals(Random(1))) - result.left
    assert delivered == pytest.approx(600 / 2, rel=0.1)


def test_breakers_keep_a_dead_destination_from_most_calls() -> None:
    shape = replace(LONG_AFTER, faults=(Fault(begin=0.0, end=600.0),), duration=600.0)
    # Without them eight pods of two slots would fail every five seconds.
    assert simulate(shape, Fixed(8), 1).failed_calls < 8 * 2 * 600 / 5 / 2


def test_terminating_pods_finish_what_they_began_and_are_paid_for_until_then() -> None:
    world = World(STEADY, STEADY.arrivals(Random(1)), 1)
    world.fleet.begin(8)
    world.clock.at(0.0, world._arrive)
    world.clock.run(60.0)
    busy = [pod for pod in world.fleet.pods if pod.busy]
    world.fleet.scale(1)
    assert len(world.fleet.draining) >= len(busy) - 1 > 0
    world.clock.run(120.0)
    assert world.fleet.draining == []


def test_pods_that_are_not_ready_yet_are_the_first_to_go() -> None:
    world = World(STEADY, [], 1)
    world.fleet.begin(2)
    world.fleet.scale(4)
    ready: list[Pod] = world.fleet.ready
    world.fleet.scale(2)
    assert world.fleet.pods == ready


def test_names_of_shapes_are_unique() -> None:
    assert len({shape.name for shape in SHAPES}) == len(SHAPES)
