from __future__ import annotations

from pgoutbox.destinations.breaker import (
    FIRST_PAUSE,
    LONGEST_PAUSE,
    OPEN_AFTER,
    REMEMBERED,
    Breaker,
)

NOW = 1000.0


def opened() -> Breaker:
    """A destination that as many messages in a row did not reach as it takes."""
    breaker = Breaker()
    for message in range(OPEN_AFTER):
        breaker.unreached(message, NOW)
    return breaker


def test_a_message_that_upsets_a_healthy_destination_is_told_apart_at_the_second_time() -> None:
    breaker = Breaker()
    assert not breaker.unreached(1, NOW)
    breaker.reached()
    assert breaker.unreached(1, NOW)
    breaker.reached()
    assert breaker.unreached(1, NOW)


def test_a_message_is_not_blamed_twice_for_the_same_successes_of_others() -> None:
    breaker = Breaker()
    breaker.unreached(1, NOW)
    breaker.reached()
    assert breaker.unreached(1, NOW)
    assert not breaker.unreached(1, NOW)


def test_a_lone_message_to_a_dead_destination_is_never_blamed() -> None:
    breaker = Breaker()
    assert not any(breaker.unreached(1, NOW + seconds) for seconds in range(1000))


def test_successes_before_a_messages_first_failure_say_nothing_about_it() -> None:
    breaker = Breaker()
    breaker.reached()
    assert not breaker.unreached(1, NOW)
    assert not breaker.unreached(1, NOW)


def test_an_outage_blames_none_of_the_messages_that_it_hits() -> None:
    breaker = Breaker()
    breaker.reached()
    assert not any(breaker.unreached(message, NOW) for _ in range(5) for message in range(100))


def test_a_breaker_is_closed_until_several_in_a_row_found_nobody_there() -> None:
    breaker = Breaker()
    for message in range(OPEN_AFTER - 1):
        breaker.unreached(message, NOW)
    assert breaker.allowance(50, 10, NOW) == 50
    breaker.unreached(99, NOW)
    assert breaker.allowance(50, 0, NOW) == 0


def test_any_answer_in_between_starts_the_count_again() -> None:
    breaker = Breaker()
    for message in range(OPEN_AFTER * 3):
        breaker.unreached(message, NOW)
        if message % (OPEN_AFTER - 1) == 0:
            breaker.reached()
    assert breaker.allowance(50, 0, NOW) == 50


def test_an_open_breaker_lets_one_message_at_a_time_try_after_a_pause() -> None:
    breaker = opened()
    assert breaker.allowance(50, 0, NOW + FIRST_PAUSE / 2) == 0
    assert breaker.half_opens_in(NOW) == FIRST_PAUSE
    assert breaker.allowance(50, 0, NOW + FIRST_PAUSE) == 1
    assert breaker.allowance(50, 1, NOW + FIRST_PAUSE) == 0
    assert breaker.allowance(0, 0, NOW + FIRST_PAUSE) == 0


def test_the_pause_between_two_tries_doubles_up_to_half_a_minute() -> None:
    breaker = opened()
    now, pauses = NOW, []
    for message in range(10):
        pauses.append(breaker.half_opens_in(now))
        now += pauses[-1]
        breaker.unreached(message, now)
    assert pauses == [min(FIRST_PAUSE * 2**n, LONGEST_PAUSE) for n in range(10)]


def test_stragglers_of_the_same_outage_do_not_prolong_the_pause() -> None:
    breaker = opened()
    for message in range(100):
        breaker.unreached(message, NOW + 0.1)
    assert breaker.half_opens_in(NOW) == FIRST_PAUSE


def test_one_answer_closes_it_and_forgets_the_long_pauses() -> None:
    breaker = opened()
    breaker.unreached(1, NOW + 100)
    breaker.reached()
    assert breaker.allowance(50, 7, NOW + 100) == 50
    assert breaker.half_opens_in(NOW + 100) == 0.0
    for message in range(OPEN_AFTER):
        breaker.unreached(message, NOW + 200)
    assert breaker.half_opens_in(NOW + 200) == FIRST_PAUSE


def test_only_so_many_messages_are_remembered_and_the_latest_of_them() -> None:
    breaker = Breaker()
    for message in range(REMEMBERED + 1):
        breaker.unreached(message, NOW)
    assert len(breaker._seen) == REMEMBERED
    breaker.reached()
    assert breaker.unreached(REMEMBERED, NOW)
    assert not breaker.unreached(0, NOW)


def test_the_state_is_told_in_three_words() -> None:
    breaker = Breaker()
    assert breaker.state(NOW) == "closed"
    breaker = opened()
    assert breaker.state(NOW) == "open"
    assert breaker.state(NOW + FIRST_PAUSE) == "half_open"
