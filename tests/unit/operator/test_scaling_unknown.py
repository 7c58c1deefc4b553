from __future__ import annotations

import json
from dataclasses import replace

import pytest

from pgoutbox_operator.scaling import Fallback, Fleet, Policy, Reason, Sample, State, decide
from tests.support.scaling import POLICY, Look, Story, outbox_of

AWAY = Look(away=True)
CALM = Look(finished=22, busy=0.73)


def test_nothing_changes_while_the_database_does_not_answer() -> None:
    story = Story(policy=replace(POLICY, min_replicas=0), replicas=7)
    decision = story.ticks(1000, AWAY)
    assert (decision.replicas, decision.reason) == (7, Reason.METRICS_UNAVAILABLE)


def test_nothing_changes_on_a_sample_that_is_too_old() -> None:
    story = Story(replicas=7)
    sample = replace(story.sample(Look(ready=5000, age=100.0)), age=60.0)
    _, decision = decide(story.state, sample, story.now, policy=POLICY)
    assert (decision.replicas, decision.reason) == (7, Reason.METRICS_STALE)


@pytest.mark.parametrize(
    ("behavior", "replicas", "expected"),
    [("Hold", 5, 2), ("AtLeast", 5, 5), ("AtLeast", 1, 2), ("Static", 1, 1), ("Static", 99, 20)],
)
def test_the_fallback_holds_after_its_time(behavior: str, replicas: int, expected: int) -> None:
    fallback = Fallback(behavior=behavior, replicas=replicas, after=300.0)  # type: ignore[arg-type]
    story = Story(policy=replace(POLICY, fallback=fallback), replicas=2)
    story.tick(CALM)
    assert story.ticks(19, AWAY).replicas == 2
    assert story.ticks(2, AWAY).replicas == expected


def test_a_scaler_that_allows_none_is_never_scaled_to_none_by_an_error() -> None:
    fallback = Fallback(behavior="Static", replicas=0, after=30.0)
    story = Story(policy=Policy(min_replicas=0, max_replicas=5, fallback=fallback), replicas=3)
    assert story.ticks(10, AWAY).replicas == 1


def test_a_restart_takes_nothing_away_for_a_whole_window() -> None:
    story = Story(replicas=10)
    story.ticks(30, CALM)
    assert story.replicas == 10
    story.state = State()
    restarted = story.now
    while story.replicas == 10:
        story.tick(Look(finished=1, busy=0.03))
    assert story.now - restarted >= POLICY.window


def test_what_happened_while_nothing_was_known_takes_nothing_away_for_a_whole_window() -> None:
    story = Story(replicas=10)
    story.ticks(30, CALM)
    assert story.replicas == 10
    story.ticks(20, AWAY)
    known = story.now
    # All workers are new ones, as after an outage that all of them died of: nothing to measure by.
    while story.replicas == 10:
        story.tick(Look(finished=1, busy=0.03))
    assert story.now - known >= POLICY.window


def test_a_restart_while_nothing_is_known_takes_nothing_away_for_a_whole_window() -> None:
    story = Story(policy=replace(POLICY, seed_rate=30.0), replicas=10)
    story.ticks(20, AWAY)
    known = story.now
    while story.replicas == 10:
        story.tick(Look(finished=1, busy=0.03))
    assert story.now - known >= POLICY.window


def test_a_look_or_two_that_failed_begin_no_new_window() -> None:
    story = Story(replicas=10)
    story.ticks(30, CALM)
    began = story.now
    story.ticks(2, AWAY)
    while story.replicas == 10:
        story.tick(Look(finished=1, busy=0.03))
    assert story.now - began <= POLICY.window + 60


def test_a_restart_changes_no_replicas_by_itself() -> None:
    story = Story(replicas=10)
    story.ticks(30, CALM)
    assert story.replicas == 10
    story.state = State()
    assert story.ticks(20, CALM).replicas == 10


def test_the_state_survives_as_json() -> None:
    story = Story(replicas=4)
    story.ticks(30, Look(finished=30, busy=1.0, ready=200, age=20.0))
    assert State.from_json(json.loads(json.dumps(story.state.to_json()))) == story.state


def test_a_clock_that_jumps_back_begins_a_new_watch_and_keeps_what_was_measured() -> None:
    story = Story(replicas=4)
    story.ticks(30, CALM)
    rate = story.state.rate
    story.now -= 3600.0
    decision = story.tick(CALM)
    assert not decision.changed
    assert story.state.since == story.now
    assert story.state.rate == pytest.approx(rate)


def test_somebody_elses_change_is_told_and_is_where_it_goes_on_from() -> None:
    story = Story(replicas=4)
    story.ticks(30, CALM)
    story.replicas = 12
    decision = story.tick(Look(finished=8, busy=0.27))
    assert decision.adopted
    assert decision.previous == 12


def test_what_somebody_else_added_stays_for_a_window() -> None:
    story = Story(replicas=4)
    story.ticks(30, CALM)
    story.replicas, changed = 12, story.now
    while story.replicas == 12:
        story.tick(Look(finished=8, busy=0.27))
    assert story.now - changed >= POLICY.window


def test_no_replicas_are_left_after_enough_time_with_nothing_to_do() -> None:
    story = Story(policy=replace(POLICY, min_replicas=0))
    while story.replicas:
        story.tick(Look(busy=0.0))
    assert story.now >= 300.0
    assert story.decisions[-1].reason is Reason.IDLE


def test_work_wakes_a_fleet_of_none_at_the_next_look() -> None:
    story = Story(policy=replace(POLICY, min_replicas=0), replicas=0)
    assert story.tick(Look()).replicas == 0
    decision = story.tick(Look(ready=1, age=2.0), seconds=5.0)
    assert (decision.replicas, decision.reason) == (1, Reason.WAKE)


def test_a_wake_brings_no_more_than_its_limit() -> None:
    policy = replace(POLICY, min_replicas=0, seed_rate=2.0, activation=3)
    story = Story(policy=policy, replicas=0)
    story.tick(Look())
    assert story.tick(Look(ready=5000, age=2.0), seconds=5.0).replicas == 3


@pytest.mark.parametrize(("due", "replicas"), [(10.0, 1), (3600.0, 0), (None, 0)])
def test_what_is_due_by_the_time_a_pod_has_started_wakes_too(
    due: float | None, replicas: int
) -> None:
    outbox = replace(outbox_of(0.0, undelivered=1), scheduled=1, next_due_in=due)
    sample = Sample(fleet=Fleet(replicas=0), outbox=outbox)
    policy = replace(POLICY, min_replicas=0)
    _, decision = decide(State(), sample, 0.0, policy=policy)
    assert decision.replicas == replicas


@pytest.mark.parametrize(("due", "replicas"), [(30.0, 1), (3600.0, 0), (None, 1)])
def test_what_is_scheduled_soon_or_nobody_knows_when_keeps_one_replica(
    due: float | None, replicas: int
) -> None:
    state, count = State(), 1
    for tick in range(40):
        now = 15.0 * tick
        outbox = replace(outbox_of(now, undelivered=1), scheduled=1, next_due_in=due)
        sample = Sample(fleet=Fleet(replicas=count), outbox=outbox)
        state, decision = decide(state, sample, now, policy=replace(POLICY, min_replicas=0))
        count = decision.replicas
    assert count == replicas
