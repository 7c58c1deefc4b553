from __future__ import annotations

import pytest

from pgoutbox.destinations.rate import Rate

NOW = 1000.0


def test_a_quiet_destination_may_take_a_seconds_worth_at_once() -> None:
    assert Rate(5.0).available(NOW) == 5


def test_a_slow_rate_lets_one_message_begin() -> None:
    rate = Rate(0.1)
    assert rate.available(NOW) == 1
    rate.spend(1, NOW)
    assert rate.available(NOW + 9.9) == 0
    assert rate.available(NOW + 10.0) == 1


def test_over_a_long_time_no_more_begin_than_the_rate_says() -> None:
    rate = Rate(7.0)
    begun = 0
    for step in range(1000):
        now = NOW + step / 100
        count = rate.available(now)
        rate.spend(count, now)
        begun += count
    assert 7 * 10 - 1 <= begun <= 7 * 10 + 7


def test_what_is_not_used_is_not_saved_up_beyond_a_second() -> None:
    rate = Rate(10.0)
    rate.spend(10, NOW)
    assert rate.available(NOW + 3600) == 10


def test_more_than_was_available_is_made_up_for() -> None:
    rate = Rate(10.0)
    rate.spend(15, NOW)
    assert not rate.allows(NOW + 0.5)
    assert rate.available(NOW + 0.6) == 1


@pytest.mark.parametrize("per_second", [0.01, 0.3, 1.0, 3.0, 7.0, 1000.0])
def test_one_more_may_begin_when_the_wait_is_over(per_second: float) -> None:
    rate = Rate(per_second)
    now = NOW
    for _ in range(100):
        rate.spend(rate.available(now), now)
        wait = rate.next_in(now)
        assert wait > 0
        now += wait
        assert rate.next_in(now) == 0
        assert rate.available(now) >= 1


def test_a_high_rate_is_claimed_in_tenths_of_a_second() -> None:
    rate = Rate(1000.0)
    rate.spend(1000, NOW)
    assert rate.available(NOW + 0.05) == 0
    assert rate.allows(NOW + 0.05)
    assert rate.available(NOW + 0.1) == 100


def test_a_clock_that_stands_still_gives_nothing() -> None:
    rate = Rate(10.0)
    rate.spend(10, NOW)
    assert rate.available(NOW) == 0
    assert rate.available(NOW - 5) == 0
