from __future__ import annotations

import dataclasses
import typing

import pytest

from pgoutbox.destinations.destination import RetryPolicy
from pgoutbox.dispatch.decide import decide
from pgoutbox.outcome import (
    Bury,
    Deferred,
    DeferUntil,
    Finish,
    Interrupted,
    Outcome,
    PermanentFailure,
    Published,
    Release,
    Retry,
    RetryableFailure,
    Transition,
    Unavailable,
    Unstarted,
)
from tests.support.dispatching import a_message

POLICY = RetryPolicy(base=1.0, cap=300.0, max_attempts=5, defer_max_age=3600.0)
JITTER = 0.5
BELOW, AT, PAST = 2, 5, 6
YOUNG, OLD, OLDER = 10.0, 3600.0, 1e9
DAY = 86_400.0

# With this jitter the backoff of the second attempt is 2 s, of the fifth 16 s, of the sixth 32 s.
GAVE_UP = Bury("gave up after 5 attempts: x")
TOO_OLD = Bury("deferred for longer than 3600 s: x")
LAST_CHANCE = Release(1.0, "interrupted by a drain at the last attempt")

# outcome: what it becomes below the limit of attempts, and at the limit
WHATEVER_THE_AGE: list[tuple[Outcome, Transition, Transition]] = [
    (Published(), Finish(), Finish()),
    (RetryableFailure("x"), Retry(2.0, "x"), GAVE_UP),
    (RetryableFailure("x", 7.0), Retry(7.0 + 2.0, "x"), GAVE_UP),
    (RetryableFailure("x", 0.0), Retry(2.0, "x"), GAVE_UP),
    (RetryableFailure("x", -5.0), Retry(2.0, "x"), GAVE_UP),
    (RetryableFailure("x", 1e9), Retry(DAY + 2.0, "x"), GAVE_UP),
    (RetryableFailure("x", float("inf")), Retry(DAY + 2.0, "x"), GAVE_UP),
    (RetryableFailure("x", float("nan")), Retry(2.0, "x"), GAVE_UP),
    (PermanentFailure("x"), Bury("x"), Bury("x")),
    (Unavailable("x", works_for_others=False), Release(2.0, "x"), Release(16.0, "x")),
    (Unavailable("x", works_for_others=True), Retry(2.0, "x"), GAVE_UP),
    (Interrupted(), Retry(1.0, "interrupted by a drain"), LAST_CHANCE),
    (Unstarted(), Release(), Release()),
]

# outcome: what it becomes below the cap on its age, and past it
WHATEVER_THE_ATTEMPTS: list[tuple[Outcome, Transition, Transition]] = [
    (Deferred(60.0, "x"), DeferUntil(60.0, "deferred: x"), TOO_OLD),
    (Deferred(0.0, "x"), DeferUntil(0.0, "deferred: x"), TOO_OLD),
    (Deferred(-60.0, "x"), DeferUntil(0.0, "deferred: x"), TOO_OLD),
    (Deferred(1e30, "x"), DeferUntil(3600.0, "deferred: x"), TOO_OLD),
]


@pytest.mark.parametrize("age", [YOUNG, OLD, OLDER])
@pytest.mark.parametrize(("outcome", "below", "at"), WHATEVER_THE_AGE, ids=str)
def test_an_outcome_and_the_attempts_decide_what_becomes_of_a_message_of_any_age(
    outcome: Outcome, below: Transition, at: Transition, age: float
) -> None:
    assert decide(outcome, a_message(attempts=BELOW, age=age), POLICY, JITTER) == below
    assert decide(outcome, a_message(attempts=AT, age=age), POLICY, JITTER) == at


@pytest.mark.parametrize("attempts", [1, BELOW, AT, PAST])
@pytest.mark.parametrize(("outcome", "young", "old"), WHATEVER_THE_ATTEMPTS, ids=str)
def test_a_deferral_lasts_until_the_message_is_too_old_at_any_attempt(
    outcome: Outcome, young: Transition, old: Transition, attempts: int
) -> None:
    assert decide(outcome, a_message(attempts=attempts, age=YOUNG), POLICY, JITTER) == young
    assert decide(outcome, a_message(attempts=attempts, age=OLD), POLICY, JITTER) == old
    assert decide(outcome, a_message(attempts=attempts, age=OLDER), POLICY, JITTER) == old


@pytest.mark.parametrize(
    ("outcome", "attempts", "age"),
    [
        (RetryableFailure("x"), AT, YOUNG),
        (PermanentFailure("x"), BELOW, YOUNG),
        (Unavailable("x", works_for_others=True), AT, YOUNG),
        (Deferred(60.0, "x"), BELOW, OLD),
    ],
    ids=str,
)
def test_what_is_buried_leaves_its_lane_under_skip_and_blocks_it_under_block(
    outcome: Outcome, attempts: int, age: float
) -> None:
    message = a_message(attempts=attempts, age=age)
    blocking = decide(outcome, message, POLICY, JITTER)
    skipped = decide(outcome, message, dataclasses.replace(POLICY, dead_head="skip"), JITTER)
    assert isinstance(blocking, Bury)
    assert not blocking.skipped
    assert skipped == Bury(blocking.error, skipped=True)


@pytest.mark.parametrize(
    ("outcome", "attempts", "expected"),
    [
        (outcome, attempts, expected)
        for outcome, below, at in WHATEVER_THE_AGE
        for attempts, expected in ((BELOW, below), (AT, at))
        if not isinstance(expected, Bury)
    ],
    ids=str,
)
def test_the_policy_for_dead_heads_changes_nothing_for_what_is_not_buried(
    outcome: Outcome, attempts: int, expected: Transition
) -> None:
    skip = dataclasses.replace(POLICY, dead_head="skip")
    assert decide(outcome, a_message(attempts=attempts), skip, JITTER) == expected


def test_a_message_that_fails_with_all_others_keeps_its_attempts_for_a_day() -> None:
    outage = RetryableFailure("x", works_for_others=False)
    assert decide(outage, a_message(attempts=AT, age=YOUNG), POLICY, JITTER) == Release(16.0, "x")
    assert decide(outage, a_message(attempts=AT, age=OLD), POLICY, JITTER) == GAVE_UP
    assert decide(outage, a_message(attempts=BELOW, age=OLD), POLICY, JITTER) == Retry(2.0, "x")


def test_a_message_that_is_throttled_comes_back_ever_more_seldom_and_is_not_given_up() -> None:
    slowed = RetryableFailure("x", throttled=True)
    assert decide(slowed, a_message(attempts=BELOW, age=YOUNG), POLICY, JITTER) == Retry(2.0, "x")
    assert decide(slowed, a_message(attempts=AT, age=YOUNG), POLICY, JITTER) == Release(16.0, "x")
    assert decide(slowed, a_message(attempts=AT, age=OLD), POLICY, JITTER) == GAVE_UP


def test_a_message_that_fails_with_all_others_waits_for_as_long_as_was_asked() -> None:
    outage = RetryableFailure("x", 60.0, works_for_others=False)
    message = a_message(attempts=BELOW, age=YOUNG)
    assert decide(outage, message, POLICY, JITTER) == Release(62.0, "x")


def test_the_tables_above_leave_no_outcome_out() -> None:
    tried = {type(entry[0]) for entry in (*WHATEVER_THE_AGE, *WHATEVER_THE_ATTEMPTS)}
    assert tried == set(typing.get_args(Outcome))


def test_a_message_past_a_limit_that_was_lowered_meanwhile_is_buried_as_well() -> None:
    transition = decide(RetryableFailure("x"), a_message(attempts=PAST), POLICY, JITTER)
    assert transition == Bury("gave up after 6 attempts: x")


@pytest.mark.parametrize("outcome", [Interrupted(), Unstarted()])
def test_a_drain_never_buries(outcome: Outcome) -> None:
    for attempts in (BELOW, AT, PAST):
        transition = decide(outcome, a_message(attempts=attempts, age=OLDER), POLICY, JITTER)
        assert not isinstance(transition, Bury)


@pytest.mark.parametrize("jitter", [0.0, 0.25, 0.999])
def test_a_dead_destination_is_never_tried_again_within_a_second(jitter: float) -> None:
    transition = decide(
        Unavailable("x", works_for_others=False), a_message(attempts=1), POLICY, jitter
    )
    assert isinstance(transition, Release)
    assert transition.delay is not None
    assert transition.delay >= 1.0


def test_an_outcome_without_a_case_is_an_error_and_never_a_guess() -> None:
    @dataclasses.dataclass(frozen=True)
    class Surprise:
        pass

    with pytest.raises(AssertionError, match="Surprise"):
        decide(typing.cast("Outcome", Surprise()), a_message(), POLICY, JITTER)
