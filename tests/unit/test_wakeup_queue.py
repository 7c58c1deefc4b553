"""Commits that wait for each other to notify, as a worker sees them."""

from __future__ import annotations

import pytest
from psycopg.errors import InsufficientPrivilege

from pgoutbox.dispatch import wakeup as module
from pgoutbox.dispatch.loudness import LOUD_RATE, QUEUE_RATE, SILENCE_SECONDS
from tests.support.alarm import Alarm, Clock, Switch


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(module, "time", clock)
    return clock


async def test_commits_that_wait_for_each_other_to_notify_are_as_good_as_too_many(
    clock: Clock,
) -> None:
    alarm = Alarm(clock)
    await alarm.switch()
    alarm.switched.waiting = 7
    await alarm.busy_producers(200, seconds=1)
    assert alarm.switched.asked == [True], "a single look may be chance"
    await alarm.busy_producers(200, seconds=1)
    assert alarm.switched.asked == [True, False]


async def test_after_commits_have_waited_it_is_quiet_for_a_while_and_then_tried_again(
    clock: Clock,
) -> None:
    alarm = Alarm(clock)
    await alarm.switch()
    alarm.switched.waiting = 7
    await alarm.busy_producers(200, seconds=2)
    silent_since, looks = clock.now, alarm.switched.looks
    alarm.notifications(0)
    while clock.now < silent_since + SILENCE_SECONDS:
        alarm.wakeup.found(20)
        await alarm.switch()
        clock.now += 1.0
    assert alarm.switched.asked == [True, False]
    assert alarm.switched.looks <= looks + 1
    clock.now += 1.0
    assert await alarm.switch()
    # What was found before the silence counts for nothing any more.
    await alarm.busy_producers(200, seconds=1)
    assert alarm.switched.asked == [True, False, True]


async def test_commits_that_wait_now_and_then_are_bearable(clock: Clock) -> None:
    alarm = Alarm(clock)
    await alarm.switch()
    for turn in range(20):
        alarm.switched.waiting = turn % 2
        await alarm.busy_producers(200, seconds=1)
    assert alarm.switched.asked == [True]


async def test_one_producer_with_two_hundred_messages_a_second_is_notified_of(clock: Clock) -> None:
    alarm = Alarm(clock)
    await alarm.switch()
    await alarm.busy_producers(200, seconds=120)
    assert alarm.switched.asked == [True]


async def test_nobody_looks_for_waiting_commits_more_often_than_once_a_second_or_while_it_is_quiet(
    clock: Clock,
) -> None:
    alarm = Alarm(clock)
    await alarm.switch()
    await alarm.busy_producers(QUEUE_RATE, seconds=10)
    assert alarm.switched.looks == 0
    await alarm.busy_producers(QUEUE_RATE + 1, seconds=10)
    for _ in range(100):
        await alarm.switch()
    assert alarm.switched.looks == 10


async def test_whoever_may_not_see_locks_asks_once_and_judges_by_the_rate_alone(
    clock: Clock,
) -> None:
    class Forbidden(Switch):
        async def fetch(self, _statement: bytes) -> list[tuple[int]]:
            self.looks += 1
            raise InsufficientPrivilege

    alarm = Alarm(clock)
    alarm.switched = Forbidden()
    await alarm.switch()
    await alarm.busy_producers(200, seconds=5)
    assert (alarm.switched.asked, alarm.switched.looks) == ([True], 1)
    await alarm.busy_producers(LOUD_RATE + 50, seconds=1)
    assert alarm.switched.asked == [True, False]
