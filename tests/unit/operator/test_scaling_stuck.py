"""What must not hold for ever, or break the law: a fleet is never left behind by odd samples."""

from __future__ import annotations

import math
from dataclasses import replace

from hypothesis import given, settings, strategies as st

from pgoutbox_operator.scaling import (
    Budget,
    Fleet,
    Limit,
    Outbox,
    Policy,
    Sample,
    State,
    Worker,
    decide,
)
from tests.support.scaling import POLICY, Look, Story

OUTAGE = Look(ready=5000, age=100.0, failed=100, busy=1.0)
SOME_FAIL = Look(ready=50_000, age=100.0, finished=95 * 15, failed=5 * 15, busy=1.0)


def test_a_few_failures_that_never_end_slow_the_recovery_down_and_do_not_prevent_it() -> None:
    story = Story(replicas=2)
    story.ticks(4, Look(finished=100 * 15, busy=0.8))
    assert story.ticks(12, OUTAGE).limited_by is Limit.DOWNSTREAM_LIMITED
    held = story.replicas
    story.ticks(7, SOME_FAIL)
    assert story.replicas == held
    story.ticks(60, SOME_FAIL)
    assert story.replicas > held + 4


def test_failures_that_come_back_end_the_slow_recovery() -> None:
    story = Story(replicas=2)
    story.ticks(4, Look(finished=100 * 15, busy=0.8))
    story.ticks(12, OUTAGE)
    story.ticks(20, SOME_FAIL)
    grown = story.replicas
    story.ticks(10, replace(SOME_FAIL, failed=500))
    assert story.replicas <= grown


def test_a_database_whose_clock_is_an_hour_behind_the_last_ones_is_measured_at_once() -> None:
    story = Story(replicas=2)
    story.ticks(5, Look(finished=1500, busy=1.0))
    before = story.state.rate
    assert before is not None
    for tick in range(12):
        sample = story.sample(Look(finished=3000, busy=1.0))
        assert sample.outbox is not None
        behind = replace(sample.outbox, at=sample.outbox.at - 3600)
        story.state, decision = decide(
            story.state, replace(sample, outbox=behind), story.now, policy=POLICY
        )
        assert decision.numbers.finished > 100 or tick == 0
    assert story.state.rate is not None
    assert story.state.rate > 1.5 * before


COUNTS = st.integers(0, 10_000)
TIMES = st.floats(-1e4, 1e7, allow_nan=False)
WORKERS = st.builds(
    Worker,
    incarnation=st.sampled_from("abcd"),
    seen_age=st.floats(0, 1e5),
    uptime=st.floats(0, 1e6),
    slots=st.integers(0, 500),
    running=st.booleans(),
    finished=COUNTS,
    attempts=COUNTS,
    failed=COUNTS,
    busy_seconds=st.floats(0, 1e6),
    serves=st.frozensets(st.sampled_from("xy")),
    opened=st.frozensets(st.sampled_from("xy")),
)
OUTBOXES = st.builds(
    Outbox,
    at=TIMES,
    ready=COUNTS,
    oldest_ready_age=st.floats(0, 1e9),
    undelivered=COUNTS,
    scheduled=COUNTS,
    next_due_in=st.none() | st.floats(0, 1e9),
    lanes=st.none() | COUNTS,
    capped=st.booleans(),
    workers=st.lists(WORKERS, max_size=4).map(tuple),
)
SAMPLES = st.builds(
    Sample,
    fleet=st.builds(
        Fleet,
        replicas=st.integers(0, 200),
        terminating=st.integers(0, 50),
        startup=st.none() | st.floats(1, 900),
    ),
    outbox=st.none() | OUTBOXES,
    age=st.floats(0, 1e4),
)


@settings(deadline=None)
@given(
    samples=st.lists(st.tuples(SAMPLES, st.floats(-100, 1000)), max_size=20),
    lowest=st.integers(0, 5),
    highest=st.integers(5, 50),
)
def test_whatever_is_seen_the_decision_is_within_bounds_or_changes_nothing(
    samples: list[tuple[Sample, float]], lowest: int, highest: int
) -> None:
    policy = Policy(max_replicas=highest, min_replicas=lowest)
    state, now = State(), 0.0
    for sample, seconds in samples:
        now += seconds
        state, decision = decide(state, sample, now, policy=policy)
        state = State.from_json(state.to_json())
        assert decision.previous == sample.fleet.replicas
        assert decision.replicas == decision.previous or 0 <= decision.replicas <= highest
        assert all(math.isfinite(n) for n in (decision.numbers.arrivals, decision.numbers.finished))


def test_more_than_can_be_counted_and_late_brings_all_there_may_be_and_takes_none_away() -> None:
    story = Story(replicas=2, policy=replace(POLICY, seed_rate=500.0))
    sample = replace_outbox(story.sample(Look(ready=10_000, age=100.0, finished=7500)), capped=True)
    for _ in range(14):
        story.state, decision = decide(story.state, sample, story.now, policy=story.policy)
        assert decision.replicas >= decision.previous
        story.replicas = decision.replicas
        look = Look(ready=10_000, age=100.0 + story.now, finished=7500, busy=1.0)
        sample = replace_outbox(story.sample(look), capped=True)
    assert story.replicas == POLICY.max_replicas


def test_more_than_can_be_counted_and_in_time_takes_none_away() -> None:
    story = Story(replicas=8, policy=replace(POLICY, seed_rate=500.0))
    for _ in range(40):
        sample = replace_outbox(story.sample(Look(ready=10_000, age=5.0, finished=10)), capped=True)
        story.state, decision = decide(story.state, sample, story.now, policy=story.policy)
        assert decision.replicas >= 8


def test_a_fleet_above_its_maximum_comes_down_to_it_and_no_further() -> None:
    sample = Sample(
        fleet=Fleet(replicas=30),
        outbox=Outbox(at=0.0, ready=0, oldest_ready_age=0.0, undelivered=0),
    )
    policy = replace(POLICY, seed_rate=50.0)
    assert decide(State(), sample, 0.0, policy=policy)[1].replicas == POLICY.max_replicas


def test_a_recovery_ends_where_nothing_more_may_be_had() -> None:
    budget = Budget(total=15, per_replica=3)
    story = Story(replicas=5, policy=replace(POLICY, budget=budget))
    story.ticks(4, Look(finished=100 * 15, busy=0.8))
    story.ticks(4, OUTAGE)
    assert story.state.limited
    decision = story.ticks(12, Look(ready=50_000, age=100.0, finished=1500, busy=1.0))
    assert not story.state.limited
    assert (story.replicas, decision.limited_by) == (5, Limit.CONNECTION_BUDGET)


def test_a_recovery_ends_where_there_is_nothing_left_to_send() -> None:
    story = Story(replicas=5)
    story.ticks(4, Look(finished=100 * 15, busy=0.8))
    story.ticks(6, OUTAGE)
    assert story.state.limited
    story.ticks(12, Look(busy=0.0))
    assert not story.state.limited


def replace_outbox(sample: Sample, *, capped: bool) -> Sample:
    assert sample.outbox is not None
    return replace(sample, outbox=replace(sample.outbox, capped=capped))


OVERLOADED = Look(ready=50_000, age=100.0, finished=1500, busy=1.0)


def test_a_trial_that_found_fewer_to_be_worse_keeps_nobody_from_having_more() -> None:
    story = Story(replicas=10, policy=replace(POLICY, max_replicas=10))
    story.ticks(50, OVERLOADED)
    assert min(d.replicas for d in story.decisions) < 10
    story.policy = replace(POLICY, max_replicas=40)
    story.ticks(10, OVERLOADED)
    assert story.replicas == 40


def test_nothing_is_tried_while_growth_is_paused_or_pods_are_missing() -> None:
    paused = Story(replicas=12, policy=replace(POLICY, paused="ScaleOut"))
    paused.ticks(60, OVERLOADED)
    assert {d.replicas for d in paused.decisions} == {12}
    missing = Story(replicas=12, policy=replace(POLICY, max_replicas=12))
    for _ in range(60):
        sample = missing.sample(OVERLOADED)
        assert sample.outbox is not None
        one = replace(sample.outbox, workers=sample.outbox.workers[:1])
        missing.state, decision = decide(
            missing.state, replace(sample, outbox=one), missing.now, policy=missing.policy
        )
        assert decision.replicas == 12


def test_a_trial_is_of_one_step_and_ends() -> None:
    story = Story(replicas=20, policy=replace(POLICY, down_share=0.1))
    story.ticks(100, OVERLOADED)
    assert {d.replicas for d in story.decisions} == {18, 20}
    assert story.replicas == 20


def test_what_was_saturated_before_a_time_in_which_nothing_was_known_counts_no_more() -> None:
    story = Story(replicas=12, policy=replace(POLICY, max_replicas=12))
    story.ticks(10, OVERLOADED)
    story.ticks(60, Look(away=True))
    story.ticks(10, OVERLOADED)
    assert {d.replicas for d in story.decisions} == {12}


def test_workers_that_could_fill_few_of_their_slots_are_believed_again_later() -> None:
    story = Story(replicas=4)
    story.ticks(20, Look(ready=500, age=30.0, finished=150, busy=0.1))
    assert story.state.full < 0.2
    story.ticks(80, Look(finished=150, busy=0.1))
    assert story.state.full > 0.75
