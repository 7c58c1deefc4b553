from __future__ import annotations

import pytest

from pgoutbox.dispatch.usage import Usage
from pgoutbox.events import BreakerChanged, DestinationStopped


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
    usage.begun("web", 50)
    clock.now += 1
    assert usage.seconds({"web": 50}) == pytest.approx(1)


def test_it_goes_on_counting_from_one_look_to_the_next(clock: Clock) -> None:
    usage = Usage(200, clock)
    usage.begun("web", 25)
    clock.now += 4
    assert usage.seconds({"web": 50}) == pytest.approx(2)
    usage.ended("web", 25)
    usage.let_go(25)
    clock.now += 4
    assert usage.seconds({"web": 50}) == pytest.approx(2)


def test_the_fullest_destination_counts(clock: Clock) -> None:
    usage = Usage(1000, clock)
    usage.begun("web", 40)
    usage.begun("kafka", 5)
    clock.now += 10
    assert usage.seconds({"web": 50, "kafka": 100}) == pytest.approx(8)


def test_destinations_that_take_turns_leave_room_to_each(clock: Clock) -> None:
    usage = Usage(1000, clock)
    for name in ("web", "kafka"):
        usage.begun(name, 50)
        clock.now += 5
        usage.ended(name, 50)
        usage.let_go(50)
    assert usage.seconds({"web": 50, "kafka": 50}) == pytest.approx(5)


def test_a_worker_is_full_when_all_together_fill_it(clock: Clock) -> None:
    usage = Usage(60, clock)
    usage.begun("web", 30)
    usage.begun("kafka", 30)
    clock.now += 10
    assert usage.seconds({"web": 50, "kafka": 50}) == pytest.approx(10)


def test_a_worker_is_full_of_what_was_published_and_cannot_be_written(clock: Clock) -> None:
    usage = Usage(100, clock)
    for _ in range(2):
        usage.begun("web", 50)
        usage.ended("web", 50)
    clock.now += 10
    assert usage.seconds({"web": 50}) == pytest.approx(10)
    usage.let_go(100)
    clock.now += 10
    assert usage.seconds({"web": 50}) == pytest.approx(10)


def test_probes_that_hang_at_an_open_destination_do_not_fill_its_slots(clock: Clock) -> None:
    usage = Usage(100, clock)
    usage.begun("web", 1)
    clock.now += 10
    usage.on_event(BreakerChanged("web", "open", "no answer"))
    clock.now += 60
    # What it takes of the worker's room is not free for others.
    assert usage.seconds({"web": 1}) == pytest.approx(10)
    clock.now += 60
    assert usage.seconds({"web": 1}) == pytest.approx(10 + 60 / 100)
    usage.on_event(BreakerChanged("web", "closed", ""))
    clock.now += 10
    assert usage.seconds({"web": 1}) == pytest.approx(10 + 60 / 100 + 10)


def test_what_hangs_at_a_stopped_destination_does_not_fill_its_slots(clock: Clock) -> None:
    usage = Usage(100, clock)
    usage.begun("web", 2)
    usage.let_go(2)
    usage.on_event(DestinationStopped("web", "it hangs"))
    clock.now += 60
    assert usage.seconds({"web": 2}) == 0
