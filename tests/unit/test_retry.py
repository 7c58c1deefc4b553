from __future__ import annotations

import math
from datetime import timedelta

import pytest
from hypothesis import given, strategies as st

from pgoutbox.destinations.destination import RetryPolicy
from pgoutbox.dispatch.retry import full_jitter, retry_delay, unavailable_delay

POLICY = RetryPolicy(base=1.0, cap=300.0)
ALMOST_ONE = math.nextafter(1.0, 0.0)


@pytest.mark.parametrize("attempts", [-1, 0, 1, 64, 1_100, 100_000, 2**31])
@pytest.mark.parametrize("jitter", [0.0, 0.5, ALMOST_ONE])
@pytest.mark.parametrize("policy", [POLICY, RetryPolicy(base=1e-3, cap=1e7), RetryPolicy(cap=0.0)])
def test_a_backoff_lies_between_nothing_and_the_cap_after_any_number_of_attempts(
    attempts: int, jitter: float, policy: RetryPolicy
) -> None:
    delay = full_jitter(attempts, policy, jitter)
    assert 0.0 <= delay <= policy.cap
    timedelta(seconds=delay)


@pytest.mark.parametrize(("attempts", "ceiling"), [(1, 2.0), (2, 4.0), (8, 256.0), (9, 300.0)])
def test_the_ceiling_of_the_backoff_doubles_until_it_meets_the_cap(
    attempts: int, ceiling: float
) -> None:
    assert full_jitter(attempts, POLICY, 0.5) == ceiling / 2


@given(
    base=st.floats(0.001, 60.0),
    cap=st.floats(0.0, 1e6),
    attempts=st.integers(0, 200_000),
    jitter=st.floats(0.0, 1.0, exclude_max=True),
)
def test_more_attempts_never_shorten_the_backoff_of_the_same_jitter(
    base: float, cap: float, attempts: int, jitter: float
) -> None:
    policy = RetryPolicy(base=base, cap=cap)
    delay = full_jitter(attempts, policy, jitter)
    assert 0.0 <= delay <= full_jitter(attempts + 1, policy, jitter) <= cap


@pytest.mark.parametrize(
    ("retry_after", "delay"), [(0.0, 0.0), (7.5, 7.5), (-1.0, 0.0), (1e12, 86_400.0)]
)
def test_the_destinations_own_word_counts_within_a_day_and_the_backoff_comes_on_top(
    retry_after: float, delay: float
) -> None:
    assert retry_delay(3, POLICY, 0.5, retry_after) == delay + full_jitter(3, POLICY, 0.5)


def test_a_wish_that_is_no_number_leaves_the_backoff_in_force() -> None:
    assert retry_delay(3, POLICY, 0.5, math.nan) == full_jitter(3, POLICY, 0.5)


def test_an_unreachable_destination_is_left_alone_for_a_second_at_least() -> None:
    assert unavailable_delay(1, POLICY, 0.0) == 1.0
    assert unavailable_delay(6, POLICY, 0.5) == 32.0
