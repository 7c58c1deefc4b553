from __future__ import annotations

from pgoutbox.dispatch.reachability import (
    CLOSE_AFTER,
    FIRST_PAUSE,
    LONGEST_PAUSE,
    REMEMBERED,
    Reachability,
)

NOW = 1000.0


def closed() -> Reachability:
    """A destination that as many messages in a row did not reach as it takes."""
    reachability = Reachability()
    for message in range(CLOSE_AFTER):
        reachability.unreached(message, NOW)
    return reachability


def test_a_message_that_upsets_a_healthy_destination_is_told_apart_at_the_second_time() -> None:
    reachability = Reachability()
    assert not reachability.unreached(1, NOW)
    reachability.reached()
    assert reachability.unreached(1, NOW)
    reachability.reached()
    assert reachability.unreached(1, NOW)


def test_a_message_is_not_blamed_twice_for_the_same_successes_of_others() -> None:
    reachability = Reachability()
    reachability.unreached(1, NOW)
    reachability.reached()
    assert reachability.unreached(1, NOW)
    assert not reachability.unreached(1, NOW)


def test_a_lone_message_to_a_dead_destination_is_never_blamed() -> None:
    reachability = Reachability()
    assert not any(reachability.unreached(1, NOW + seconds) for seconds in range(1000))


def test_successes_before_a_messages_first_failure_say_nothing_about_it() -> None:
    reachability = Reachability()
    reachability.reached()
    assert not reachability.unreached(1, NOW)
    assert not reachability.unreached(1, NOW)


def test_an_outage_blames_none_of_the_messages_that_it_hits() -> None:
    reachability = Reachability()
    reachability.reached()
    assert not any(reachability.unreached(message, NOW) for _ in range(5) for message in range(100))


def test_a_destination_is_open_until_several_in_a_row_found_nobody_there() -> None:
    reachability = Reachability()
    for message in range(CLOSE_AFTER - 1):
        reachability.unreached(message, NOW)
    assert reachability.allowance(50, 10, NOW) == 50
    reachability.unreached(99, NOW)
    assert reachability.allowance(50, 0, NOW) == 0


def test_any_answer_in_between_starts_the_count_again() -> None:
    reachability = Reachability()
    for message in range(CLOSE_AFTER * 3):
        reachability.unreached(message, NOW)
        if message % (CLOSE_AFTER - 1) == 0:
            reachability.reached()
    assert reachability.allowance(50, 0, NOW) == 50


def test_a_closed_destination_is_tried_with_one_message_at_a_time_after_a_pause() -> None:
    reachability = closed()
    assert reachability.allowance(50, 0, NOW + FIRST_PAUSE / 2) == 0
    assert reachability.reopens_in(NOW) == FIRST_PAUSE
    assert reachability.allowance(50, 0, NOW + FIRST_PAUSE) == 1
    assert reachability.allowance(50, 1, NOW + FIRST_PAUSE) == 0
    assert reachability.allowance(0, 0, NOW + FIRST_PAUSE) == 0


def test_the_pause_between_two_tries_doubles_up_to_half_a_minute() -> None:
    reachability = closed()
    now, pauses = NOW, []
    for message in range(10):
        pauses.append(reachability.reopens_in(now))
        now += pauses[-1]
        reachability.unreached(message, now)
    assert pauses == [min(FIRST_PAUSE * 2**n, LONGEST_PAUSE) for n in range(10)]


def test_stragglers_of_the_same_outage_do_not_prolong_the_pause() -> None:
    reachability = closed()
    for message in range(100):
        reachability.unreached(message, NOW + 0.1)
    assert reachability.reopens_in(NOW) == FIRST_PAUSE


def test_one_answer_opens_it_wide_and_forgets_the_long_pauses() -> None:
    reachability = closed()
    reachability.unreached(1, NOW + 100)
    reachability.reached()
    assert reachability.allowance(50, 7, NOW + 100) == 50
    assert reachability.reopens_in(NOW + 100) == 0.0
    for message in range(CLOSE_AFTER):
        reachability.unreached(message, NOW + 200)
    assert reachability.reopens_in(NOW + 200) == FIRST_PAUSE


def test_only_so_many_messages_are_remembered_and_the_latest_of_them() -> None:
    reachability = Reachability()
    for message in range(REMEMBERED + 1):
        reachability.unreached(message, NOW)
    assert len(reachability._seen) == REMEMBERED
    reachability.reached()
    assert reachability.unreached(REMEMBERED, NOW)
    assert not reachability.unreached(0, NOW)
