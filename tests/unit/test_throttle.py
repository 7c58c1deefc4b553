from __future__ import annotations

from pgoutbox.destinations.throttle import FIRST_HOLD, LONGEST_HOLD, Throttle

NOW = 1000.0


def test_a_destination_that_never_complained_has_no_limit_of_its_own() -> None:
    throttle = Throttle()
    throttle.took(50)
    assert throttle.allowance(50, 10, NOW) == 50
    assert throttle.opens_in(NOW) == 0


def test_after_a_complaint_nothing_begins_for_a_while_and_then_half_as_much() -> None:
    throttle = Throttle()
    throttle.slowed(40, 0.0, NOW)
    assert throttle.allowance(50, 0, NOW) == 0
    assert throttle.opens_in(NOW) == FIRST_HOLD
    assert throttle.allowance(50, 0, NOW + FIRST_HOLD) == 20
    assert throttle.allowance(50, 15, NOW + FIRST_HOLD) == 5
    assert throttle.allowance(50, 30, NOW + FIRST_HOLD) == 0


def test_the_destination_says_how_long_within_reason() -> None:
    for asked, given in ((7.0, 7.0), (0.1, FIRST_HOLD), (1e9, LONGEST_HOLD), (-3.0, FIRST_HOLD)):
        throttle = Throttle()
        throttle.slowed(10, asked, NOW)
        assert throttle.opens_in(NOW) == given
    throttle = Throttle()
    throttle.slowed(10, float("nan"), NOW)
    assert throttle.opens_in(NOW) == FIRST_HOLD


def test_all_that_were_told_at_the_same_time_count_once() -> None:
    throttle = Throttle()
    for _ in range(40):
        throttle.slowed(40, 0.0, NOW)
    assert throttle.limit == 20


def test_without_a_success_between_them_pauses_double_and_the_limit_ends_at_one() -> None:
    throttle = Throttle()
    now, holds = NOW, []
    for _ in range(9):
        throttle.slowed(16, 0.0, now)
        holds.append(throttle.opens_in(now))
        now += holds[-1]
    assert holds == [0.5, 1, 2, 4, 8, 16, 30, 30, 30]
    assert throttle.allowance(50, 0, now) == 1


def test_each_round_of_successes_lets_one_more_at_once() -> None:
    throttle = Throttle()
    throttle.slowed(20, 0.0, NOW)
    for _ in range(10):
        throttle.took(50)
    assert 10.9 < (throttle.limit or 0) < 11.0


def test_a_limit_that_reaches_the_concurrency_is_none_any_more() -> None:
    throttle = Throttle()
    throttle.slowed(4, 0.0, NOW)
    for _ in range(20):
        throttle.took(5)
    assert throttle.limit is None


def test_a_quota_is_used_up_and_little_is_sent_beyond_it() -> None:
    """Five a second, a burst of five; a message takes ten milliseconds."""
    throttle, tokens, taken, refused, now = Throttle(), 5.0, 0, 0, NOW
    while now < NOW + 60:
        for _ in range(throttle.allowance(50, 0, now)):
            if tokens >= 1:
                tokens -= 1
                taken += 1
                throttle.took(50)
            else:
                refused += 1
                throttle.slowed(1, 0.0, now)
        now += 0.01
        tokens = min(5.0, tokens + 0.05)
    assert taken > 0.75 * 5 * 60
    assert refused < taken
