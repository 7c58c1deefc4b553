from __future__ import annotations

from collections import deque

from pgoutbox.destinations.breaker import (
    FAILING_SECONDS,
    GONE_PAUSE,
    MOST_PROBES,
    REMEMBERED,
    Breaker,
    BreakerLimits,
)

NOW = 1000.0
LIMITS = BreakerLimits(failures=5, pause=0.5, max_pause=30.0)


def a_breaker() -> Breaker:
    return Breaker(LIMITS)


def opened() -> Breaker:
    """A destination that as many messages in a row did not reach as it takes."""
    breaker = a_breaker()
    for message in range(LIMITS.failures):
        breaker.unreached(message, NOW)
    return breaker


def test_a_message_that_upsets_a_healthy_destination_is_told_apart_at_the_second_time() -> None:
    breaker = a_breaker()
    assert not breaker.unreached(1, NOW)
    breaker.reached(NOW)
    assert breaker.unreached(1, NOW)
    breaker.reached(NOW)
    assert breaker.unreached(1, NOW)


def test_a_message_is_not_blamed_twice_for_the_same_successes_of_others() -> None:
    breaker = a_breaker()
    breaker.unreached(1, NOW)
    breaker.reached(NOW)
    assert breaker.unreached(1, NOW)
    assert not breaker.unreached(1, NOW)


def test_a_lone_message_that_reaches_nobody_is_never_blamed() -> None:
    breaker = a_breaker()
    assert not any(breaker.unreached(1, NOW + seconds) for seconds in range(1000))


def test_a_lone_message_that_fails_is_blamed_each_time() -> None:
    breaker = a_breaker()
    assert all(breaker.failed(1, NOW + seconds) for seconds in range(1000))
    assert breaker.state(NOW + 1000) == "closed"


def test_successes_before_a_messages_first_failure_say_nothing_about_it() -> None:
    breaker = a_breaker()
    breaker.reached(NOW)
    assert not breaker.unreached(1, NOW)
    assert not breaker.unreached(1, NOW)


def test_an_outage_blames_none_of_the_messages_that_reach_nobody() -> None:
    breaker = a_breaker()
    breaker.reached(NOW)
    assert not any(breaker.unreached(message, NOW) for _ in range(5) for message in range(100))


def test_an_outage_blames_only_those_that_failed_before_it_was_known() -> None:
    breaker = a_breaker()
    blamed = [breaker.failed(message, NOW) for message in range(100)]
    assert blamed == [True] * (LIMITS.failures - 1) + [False] * (101 - LIMITS.failures)


def test_an_hour_of_failing_probes_blames_nobody() -> None:
    breaker = a_breaker()
    for message in range(LIMITS.failures):
        breaker.failed(message, NOW)
    now = NOW
    while now < NOW + 3600:
        now += breaker.half_opens_in(now)
        assert breaker.state(now) == "half_open"
        assert not breaker.failed(3, now)
        assert breaker.state(now) == "open"


def test_messages_that_always_fail_are_blamed_while_others_get_through() -> None:
    breaker = a_breaker()
    poison = range(100, 100 + 3 * LIMITS.failures)
    for message in poison:
        breaker.failed(message, NOW)
    for _ in range(5):
        breaker.reached(NOW)
        assert all(breaker.failed(message, NOW) for message in poison)
        assert breaker.state(NOW) == "closed"


def test_a_message_that_is_to_blame_and_fails_as_a_probe_keeps_the_breaker_from_closing() -> None:
    breaker = a_breaker()
    breaker.failed(1, NOW)
    breaker.reached(NOW)
    for message in range(10, 10 + LIMITS.failures):
        breaker.failed(message, NOW)
    now = NOW + breaker.half_opens_in(NOW)
    assert breaker.failed(1, now)
    assert breaker.state(now) == "open"


def test_a_breaker_is_closed_until_several_in_a_row_found_nobody_there() -> None:
    breaker = a_breaker()
    for message in range(LIMITS.failures - 1):
        breaker.unreached(message, NOW)
    assert breaker.allowance(50, 10, NOW) == 50
    breaker.unreached(99, NOW)
    assert breaker.allowance(50, 0, NOW) == 0
    assert breaker.is_open


def test_the_same_message_again_and_again_is_not_several() -> None:
    breaker = a_breaker()
    for _ in range(3 * LIMITS.failures):
        breaker.failed(1, NOW)
        breaker.failed(2, NOW)
    assert breaker.state(NOW) == "closed"


def test_a_lone_message_that_reaches_nobody_is_tried_less_and_less_often() -> None:
    breaker = a_breaker()
    for _ in range(LIMITS.failures):
        breaker.unreached(1, NOW)
    assert breaker.state(NOW) == "open"


def test_two_that_have_failed_for_long_without_a_success_between_them_are_enough() -> None:
    breaker = a_breaker()
    breaker.failed(1, NOW)
    breaker.failed(2, NOW + FAILING_SECONDS - 1)
    assert breaker.state(NOW + FAILING_SECONDS - 1) == "closed"
    assert not breaker.failed(1, NOW + FAILING_SECONDS)
    assert breaker.state(NOW + FAILING_SECONDS) == "open"


def test_any_answer_in_between_starts_the_count_again() -> None:
    breaker = a_breaker()
    for message in range(LIMITS.failures * 3):
        breaker.unreached(message, NOW)
        if message % (LIMITS.failures - 1) == 0:
            breaker.reached(NOW)
    assert breaker.allowance(50, 0, NOW) == 50


def test_an_open_breaker_lets_one_message_at_a_time_try_after_a_pause() -> None:
    breaker = opened()
    assert breaker.allowance(50, 0, NOW + LIMITS.pause / 2) == 0
    assert breaker.half_opens_in(NOW) == LIMITS.pause
    assert breaker.allowance(50, 0, NOW + LIMITS.pause) == 1
    assert breaker.allowance(50, 1, NOW + LIMITS.pause) == 0
    assert breaker.allowance(0, 0, NOW + LIMITS.pause) == 0


def test_a_try_in_vain_doubles_the_pause_up_to_the_longest() -> None:
    breaker = opened()
    now, pauses = NOW, []
    for _ in range(9):
        pauses.append(breaker.half_opens_in(now))
        now += pauses[-1]
        breaker.unreached(99, now)
    assert pauses == [0.5, 1, 2, 4, 8, 16, 30, 30, 30]


def test_messages_that_were_under_way_when_it_opened_do_not_lengthen_the_pause() -> None:
    breaker = opened()
    for message in range(100, 200):
        breaker.unreached(message, NOW)
    assert breaker.half_opens_in(NOW) == LIMITS.pause


def test_a_destination_that_asks_for_time_is_given_it_within_the_longest_pause() -> None:
    for asked, given in ((7.0, 7.0), (0.1, 0.5), (1e9, 30.0), (-1.0, 0.5), (float("nan"), 0.5)):
        breaker = a_breaker()
        for message in range(LIMITS.failures):
            breaker.failed(message, NOW, retry_after=asked)
        assert breaker.half_opens_in(NOW) == given


def test_a_success_closes_it_and_the_next_outage_begins_with_a_short_pause() -> None:
    breaker = opened()
    breaker.unreached(99, NOW + LIMITS.pause)
    breaker.reached(NOW)
    assert breaker.allowance(50, 10, NOW) == 50
    assert not breaker.is_open
    for message in range(LIMITS.failures):
        breaker.unreached(message + 1000, NOW + 100)
    assert breaker.half_opens_in(NOW + 100) == LIMITS.pause


def test_a_destination_that_wants_nothing_more_is_left_alone_for_an_hour() -> None:
    breaker = a_breaker()
    breaker.gone(NOW)
    assert breaker.allowance(50, 0, NOW + GONE_PAUSE - 1) == 0
    assert breaker.allowance(50, 0, NOW + GONE_PAUSE) == 1
    assert breaker.gone(NOW + GONE_PAUSE)
    assert breaker.state(NOW + GONE_PAUSE + 1) == "open"


def test_what_was_sent_before_it_was_known_that_a_destination_is_gone_changes_nothing() -> None:
    breaker = a_breaker()
    assert breaker.gone(NOW)
    assert not breaker.gone(NOW + 1)
    breaker.reached(NOW + 2)
    assert breaker.half_opens_in(NOW + 2) == GONE_PAUSE - 2
    breaker.reached(NOW + GONE_PAUSE)
    assert breaker.state(NOW + GONE_PAUSE) == "closed"


def test_a_breaker_forgets_the_oldest_messages() -> None:
    breaker = a_breaker()
    breaker.unreached(0, NOW)
    for message in range(1, REMEMBERED + 1):
        breaker.unreached(message, NOW)
    breaker.reached(NOW)
    assert not breaker.unreached(0, NOW)
    assert breaker.unreached(REMEMBERED, NOW)
    assert len(breaker._seen) == REMEMBERED


def test_each_try_in_vain_lets_twice_as_many_try_the_next_time() -> None:
    breaker = opened()
    now, tries = NOW, []
    for _ in range(8):
        now += breaker.half_opens_in(now)
        tries.append(breaker.allowance(50, 0, now))
        breaker.unreached(99, now)
    assert tries == [1, 2, 4, 8, 16, 32, MOST_PROBES, MOST_PROBES]


def test_a_hundred_messages_that_always_fail_keep_the_others_waiting_for_a_minute_or_two() -> None:
    breaker = Breaker()
    waiting = deque(range(100))
    now = NOW
    while waiting:
        for _ in range(min(breaker.allowance(50, 0, now), len(waiting))):
            breaker.failed(waiting.popleft(), now)
        now += max(breaker.half_opens_in(now), 0.01)
    assert now - NOW < 120
