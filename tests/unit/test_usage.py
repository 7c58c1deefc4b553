from __future__ import annotations

import pytest

from pgoutbox.dispatch.usage import Usage


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


def test_an_idle_worker_is_not_used(clock: Clock) -> None:
    usage = Usage(200, clock)
    clock.now += 60
    assert usage.seconds({"web": 50}) == 0


def test_all_slots_taken_for_a_second_is_a_second(clock: Clock) -> None:
    usage = Usage(200, clock)
    usage.changed("web", 50)
    clock.now += 1
    assert usage.seconds({"web": 50}) == pytest.approx(1)


def test_it_goes_on_counting_from_one_look_to_the_next(clock: Clock) -> None:
    usage = Usage(200, clock)
    usage.changed("web", 25)
    clock.now += 4
    assert usage.seconds({"web": 50}) == pytest.approx(2)
    usage.changed("web", 0)
    clock.now += 4
    assert usage.seconds({"web": 50}) == pytest.approx(2)


def test_the_fullest_destination_counts(clock: Clock) -> None:
    usage = Usage(1000, clock)
    usage.changed("web", 40)
    usage.changed("kafka", 5)
    clock.now += 10
    assert usage.seconds({"web": 50, "kafka": 100}) == pytest.approx(8)


def test_destinations_that_take_turns_leave_room_to_each(clock: Clock) -> None:
    usage = Usage(1000, clock)
    for name in ("web", "kafka"):
        usage.changed(name, 50)
        clock.now += 5
        usage.changed(name, 0)
    assert usage.seconds({"web": 50, "kafka": 50}) == pytest.approx(5)


def test_a_worker_is_full_when_all_together_fill_it(clock: Clock) -> None:
    usage = Usage(60, clock)
    usage.changed("web", 30)
    usage.changed("kafka", 30)
    clock.now += 10
    assert usage.seconds({"web": 50, "kafka": 50}) == pytest.approx(10)
