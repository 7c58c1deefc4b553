"""When something that may become dear is due again."""

from __future__ import annotations

from pgoutbox.dispatch.pace import LONGEST_PAUSE, SHARE, Pace


def test_what_is_paced_is_done_at_once_and_then_in_its_interval() -> None:
    pace = Pace(1.0)
    assert pace.due(100.0)
    pace.answered(100.01)
    assert not pace.due(100.99)
    assert pace.due(101.0)


def test_what_takes_long_is_done_the_less_often() -> None:
    pace = Pace(1.0)
    assert pace.due(100.0)
    pace.answered(102.0)
    assert not pace.due(102.0 + SHARE * 2.0 - 0.1)
    assert pace.due(102.0 + SHARE * 2.0)


def test_what_fails_is_done_less_and_less_often_until_it_works() -> None:
    pace = Pace(1.0)
    now, pauses = 100.0, []
    for _ in range(10):
        assert pace.due(now)
        sent = now
        while not pace.is_due(now):
            now += 0.5
        pauses.append(now - sent)
    assert pauses[:4] == [1.0, 2.0, 4.0, 8.0]
    assert pauses[-1] == LONGEST_PAUSE
    assert pace.due(now)
    pace.answered(now)
    assert pace.due(now + 1.0)


def test_what_is_hastened_still_takes_no_more_than_its_share() -> None:
    pace = Pace(60.0)
    assert pace.due(100.0)
    pace.answered(100.1)
    pace.hasten()
    assert not pace.due(100.1 + SHARE * 0.1 - 0.05)
    assert pace.due(100.1 + SHARE * 0.1 + 0.05)
