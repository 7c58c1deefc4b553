from __future__ import annotations

import pytest

from pgoutbox.dispatch import drain
from pgoutbox.dispatch.drain import Deadline, DrainTimes

BEGAN = 1000.0
TIMES = DrainTimes(grace=30.0, soft=20.0, cancel=3.0, release=2.0, flush=3.0, margin=2.0)


class Clock:
    """A monotonic clock that stands still."""

    def __init__(self, now: float) -> None:
        self.now = now

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock(BEGAN)
    monkeypatch.setattr(drain, "time", clock)
    return clock


def test_the_deadline_leaves_a_margin_before_the_grace_ends(clock: Clock) -> None:
    deadline = Deadline(TIMES, BEGAN)
    assert deadline.within(20.0) == 20.0
    assert deadline.within(1000.0) == 28.0
    clock.now = BEGAN + 27.5
    assert deadline.within(20.0) == 0.5


def test_nothing_is_left_after_the_deadline_and_never_less(clock: Clock) -> None:
    deadline = Deadline(TIMES, BEGAN)
    clock.now = BEGAN + 100.0
    assert deadline.within(20.0) == 0.0
    assert deadline.elapsed == 100.0


def test_a_signal_that_came_a_while_ago_has_used_up_its_time(clock: Clock) -> None:
    clock.now = BEGAN
    assert Deadline(TIMES, BEGAN - 10.0).within(1000.0) == 18.0


def test_the_steps_of_the_shipped_defaults_fit_into_the_shipped_grace(clock: Clock) -> None:
    times = DrainTimes()
    assert times.total + times.margin <= times.grace
    assert Deadline(times, clock.now).within(times.total) == times.total
