from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest

from pgoutbox_operator.scaling import (
    Budget,
    Decision,
    Fleet,
    Limit,
    Policy,
    Reason,
    Sample,
    State,
    Worker,
    decide,
    open_destinations,
)
from tests.support.scaling import POLICY, Look, Story, outbox_of

# One replica gets through two messages a second when it is fully used.
CALM = Look(finished=22, busy=0.73)
FULL = Look(finished=30, busy=1.0)
MANY = replace(POLICY, max_replicas=100)


def settled(policy: Policy = POLICY, replicas: int = 4, look: Look = CALM) -> Story:
    """Nothing was new for long enough, and no window is open."""
    story = Story(policy=policy, replicas=replicas)
    for _ in range(20):
        story.replicas = replicas
        story.tick(look)
    return story


def test_nothing_changes_while_the_fleet_is_about_as_busy_as_it_should_be() -> None:
    story = settled()
    decision = story.tick(CALM)
    assert (decision.replicas, decision.reason) == (4, Reason.STEADY)
    assert decision.numbers.rate_per_replica == pytest.approx(2.0, rel=0.05)
    assert decision.numbers.arrivals == pytest.approx(4 * 22 / 15)


def test_arrivals_alone_bring_replicas_before_there_is_a_backlog() -> None:
    story = settled()
    decision = story.ticks(2, FULL)
    assert (decision.replicas, decision.reason) == (5, Reason.ARRIVALS)


def test_a_backlog_brings_enough_replicas_to_drain_it_within_the_objective() -> None:
    story = settled(MANY)
    decision = story.tick(replace(FULL, ready=400, age=10.0))
    assert decision.reason is Reason.BACKLOG
    arrivals = decision.numbers.arrivals
    # 15 s of arrivals may wait; the rest, and what comes before a pod has started, in 15 s.
    excess = 400 + 20 * (arrivals - 4 * 2) - 15 * arrivals
    assert decision.numbers.needed_up == pytest.approx((arrivals + excess / 15) / 2, abs=2)


def test_what_waits_anyway_at_this_rate_of_arrivals_is_no_backlog() -> None:
    # 5.9 a second may wait for half of 30 seconds: 88.
    look = replace(CALM, ready=80, age=2.0)
    story = settled(look=look)
    assert story.tick(look).reason is Reason.STEADY


def test_an_older_backlog_needs_more_than_a_younger_one() -> None:
    def needed(age: float) -> int:
        policy = replace(MANY, startup=1.0)
        story = settled(policy)
        sample = story.sample(FULL)
        assert sample.outbox is not None
        # It arrived long ago, so that arrivals are what they were.
        old = replace(sample.outbox, ready=400, oldest_ready_age=age)
        found = decide(story.state, replace(sample, outbox=old), story.now, policy=policy)
        return found[1].numbers.needed_up

    assert needed(0.0) < needed(5.0) < needed(8.0)
    # Beyond the objective more replicas would come too late all the same.
    assert needed(30.0) == needed(300.0)


def test_replicas_go_only_when_they_were_not_needed_for_the_whole_window() -> None:
    story = settled()
    idle = Look(finished=2, busy=0.07)
    while story.replicas == 4:
        story.tick(idle)
        assert story.now < 1000
    waited = 15.0 * sum(d.reason is Reason.STABILIZING for d in story.decisions)
    assert waited >= POLICY.window - 30.0


def test_at_most_half_of_the_replicas_go_and_no_more_within_a_minute() -> None:
    story = settled(replicas=16)
    story.ticks(60, Look(finished=0, busy=0.0))
    steps = [d for d in story.decisions if d.changed]
    assert story.replicas == 1
    assert all(d.replicas >= d.previous // 2 for d in steps)
    assert all(d.reason is Reason.SURPLUS for d in steps)
    ticks = [n for n, d in enumerate(story.decisions) if d.changed]
    assert min(b - a for a, b in pairwise(ticks)) * 15.0 >= 60.0


def test_failing_destinations_hold_the_fleet_and_then_shrink_it_to_what_they_accept() -> None:
    story = settled(replicas=8)
    failing = Look(finished=5, failed=25, busy=1.0, ready=5000, age=100.0)
    first = story.tick(failing)
    assert (first.replicas, first.reason) == (8, Reason.DOWNSTREAM_LIMITED)
    last = story.ticks(12, failing)
    assert last.replicas < 8
    assert last.limited_by is Limit.DOWNSTREAM_LIMITED
    assert all(d.replicas <= d.previous for d in story.decisions[-13:])


def test_a_fleet_that_gets_nothing_through_shrinks_to_one_and_not_to_none() -> None:
    story = settled(policy=replace(POLICY, min_replicas=0), replicas=8)
    dead = Look(finished=0, failed=25, busy=1.0, ready=5000, age=100.0)
    assert story.ticks(40, dead).replicas == 1


def test_a_fleet_whose_destinations_accept_again_grows_in_doubling_steps() -> None:
    story = settled(replicas=8)
    story.ticks(40, Look(finished=0, failed=25, busy=1.0, ready=5000, age=100.0))
    assert story.replicas == 1
    recovery = len(story.decisions)
    story.ticks(20, replace(FULL, ready=5000, age=500.0))
    steps = [d.replicas - d.previous for d in story.decisions[recovery:] if d.changed]
    assert steps[:4] == [1, 2, 4, 8]


def test_a_recovery_needs_a_success_and_not_only_the_absence_of_failures() -> None:
    story = settled(replicas=8)
    story.ticks(40, Look(finished=0, failed=25, busy=1.0, ready=5000, age=100.0))
    assert (
        story.ticks(10, Look(finished=0, failed=0, busy=0.0, ready=5000, age=500.0)).replicas == 1
    )


def test_back_pressure_that_is_ignored_lets_the_fleet_grow() -> None:
    story = settled(policy=replace(POLICY, backpressure="Ignore"))
    decision = story.tick(Look(finished=20, failed=10, busy=1.0, ready=5000, age=100.0))
    assert decision.replicas > 4


def test_no_more_replicas_than_the_connections_pay_for() -> None:
    budget = Budget(total=40, reserved=4, per_replica=4, surge=2)
    story = settled(policy=replace(POLICY, budget=budget))
    decision = story.ticks(4, replace(FULL, ready=5000, age=100.0))
    assert (decision.replicas, decision.limited_by) == (7, Limit.CONNECTION_BUDGET)


def test_pods_that_still_terminate_hold_connections_that_growth_waits_for() -> None:
    story = settled(policy=replace(POLICY, budget=Budget(total=40, per_replica=4)))
    sample = story.sample(replace(FULL, ready=5000, age=100.0))
    waiting = replace(sample, fleet=replace(sample.fleet, terminating=4))
    _, decision = decide(story.state, waiting, story.now, policy=story.policy)
    assert (decision.replicas, decision.limited_by) == (6, Limit.CONNECTION_BUDGET)


def test_a_fleet_above_its_maximum_comes_down_at_once() -> None:
    story = settled(replicas=16)
    story.policy = replace(POLICY, max_replicas=5)
    decision = story.tick(CALM)
    assert (decision.replicas, decision.reason) == (5, Reason.BOUNDS)


def test_a_fleet_below_its_minimum_grows_to_it() -> None:
    story = settled()
    story.policy = replace(POLICY, min_replicas=6)
    decision = story.tick(CALM)
    assert (decision.replicas, decision.reason) == (6, Reason.BOUNDS)


def test_no_more_replicas_than_the_lanes_can_use() -> None:
    story = settled()
    sample = story.sample(replace(FULL, ready=5000, age=100.0))
    assert sample.outbox is not None
    # Ten slots each: 52 lanes keep six replicas busy.
    few = replace(sample, outbox=replace(sample.outbox, lanes=52))
    _, decision = decide(story.state, few, story.now, policy=POLICY)
    assert (decision.replicas, decision.limited_by) == (6, Limit.ORDERING_KEYS)


@pytest.mark.parametrize(("paused", "replicas"), [("ScaleOut", 4), ("All", 4), ("ScaleIn", 12)])
def test_a_pause_forbids_its_direction(paused: str, replicas: int) -> None:
    story = settled()
    story.policy = replace(POLICY, paused=paused)  # type: ignore[arg-type]
    decision = story.tick(replace(FULL, ready=200, age=5.0))
    assert (decision.replicas > 4) is (replicas > 4)
    assert (decision.reason is Reason.PAUSED) is (replicas == 4)


def test_more_replicas_that_get_nothing_more_through_are_tried_without() -> None:
    story = settled(policy=replace(POLICY, max_replicas=16), replicas=16)
    # Whatever their number, the database lets six messages a second through.
    for _ in range(60):
        story.tick(Look(finished=90 // story.replicas, busy=1.0, ready=5000, age=100.0))
    assert story.replicas < 8
    assert story.decisions[-1].limited_by is Limit.DATABASE_BOUND


def test_a_trial_with_fewer_replicas_that_get_less_through_ends() -> None:
    story = settled(policy=replace(POLICY, max_replicas=16), replicas=16)
    for _ in range(60):
        story.tick(Look(finished=30, busy=1.0, ready=50_000, age=100.0))
    assert min(d.replicas for d in story.decisions) < 16
    assert story.replicas == 16


def test_a_worker_that_never_tells_how_busy_it_is_is_measured_when_it_is_behind() -> None:
    story = Story(replicas=2)
    story.ticks(4, Look(finished=30, busy=0.0, ready=300, age=15.0))
    assert story.decisions[-1].numbers.rate_per_replica == pytest.approx(2.0)
    assert story.replicas > 2


def test_a_worker_that_can_fill_only_a_quarter_of_its_slots_is_full_then() -> None:
    story = Story(replicas=2)
    story.ticks(10, Look(finished=30, busy=0.25, ready=300, age=15.0))
    rate = story.decisions[-1].numbers.rate_per_replica
    assert rate is not None
    assert rate < 3.0


def worker(name: str, *, opened: bool, uptime: float = 100.0, seen_age: float = 1.0) -> Worker:
    return Worker(
        incarnation=name,
        seen_age=seen_age,
        uptime=uptime,
        slots=10,
        finished=0,
        attempts=0,
        failed=0,
        busy_seconds=0.0,
        serves=frozenset({"crm"}),
        opened=frozenset({"crm"} if opened else ()),
    )


@pytest.mark.parametrize(
    ("workers", "expected"),
    [
        ([], set()),
        ([worker("a", opened=True), worker("b", opened=True)], {"crm"}),
        ([worker("a", opened=True), worker("b", opened=False)], set()),
        ([worker("a", opened=True), worker("new", opened=False, uptime=5.0)], {"crm"}),
        ([worker("new", opened=True, uptime=5.0)], {"crm"}),
        ([worker("a", opened=True), worker("gone", opened=False, seen_age=60.0)], {"crm"}),
    ],
)
def test_a_destination_is_open_when_all_that_have_had_time_to_see_it_say_so(
    workers: list[Worker], expected: set[str]
) -> None:
    assert open_destinations(workers, fresh=45.0) == expected


def test_the_first_look_at_an_outbox_holds() -> None:
    sample = Sample(fleet=Fleet(replicas=3), outbox=outbox_of(0.0, ready=500, age=20.0))
    _, decision = decide(State(), sample, 0.0, policy=POLICY)
    assert decision == Decision(
        replicas=3, previous=3, reason=Reason.STEADY, numbers=decision.numbers
    )
