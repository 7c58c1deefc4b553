from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import pytest

from pgoutbox.dispatch import wakeup as module
from pgoutbox.dispatch.loudness import (
    CALM_AFTER,
    LOUD_RATE,
    SILENCE_SECONDS,
    SILENT_INTERVAL,
    SLEEPY_AFTER,
)
from pgoutbox.dispatch.wakeup import FIRST_INTERVAL, MEND_SECONDS, Wakeup
from tests.support.alarm import Alarm, Clock, Switch

if TYPE_CHECKING:
    from collections.abc import AsyncIterator


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(module, "time", clock)
    return clock


@asynccontextmanager
async def waiting(wakeup: Wakeup) -> AsyncIterator[asyncio.Task[None]]:
    """Somebody who waits; afterwards the wait has to be over."""
    task = asyncio.create_task(wakeup.wait())
    await asyncio.sleep(0)
    yield task
    async with asyncio.timeout(5):
        await task


async def test_whoever_finds_nothing_for_a_while_asks_for_notifications_once(clock: Clock) -> None:
    alarm = Alarm(clock)
    clock.now += SLEEPY_AFTER
    assert await alarm.switch()
    assert not await alarm.switch()
    assert alarm.switched.asked == [True]


async def test_a_worker_with_a_steady_stream_of_rows_asks_for_nothing(clock: Clock) -> None:
    alarm = Alarm(clock)
    alarm.rows(per_second=1000)
    assert not await alarm.switch()
    assert alarm.switched.asked == []


async def test_a_few_rows_a_second_are_no_reason_to_go_without_notifications(clock: Clock) -> None:
    alarm = Alarm(clock)
    alarm.rows(per_second=200)
    assert await alarm.switch()


async def loud(alarm: Alarm) -> None:
    """Let there be too many notifications, and somebody who finds rows."""
    await alarm.switch()
    alarm.notifications(LOUD_RATE + 50)
    alarm.wakeup.found(1)
    assert not await alarm.switch()
    assert alarm.switched.asked == [True, False]


async def test_too_many_notifications_are_switched_off_until_there_is_nothing_to_do(
    clock: Clock,
) -> None:
    alarm = Alarm(clock)
    await loud(alarm)
    clock.now += 1.0
    assert not await alarm.switch()
    clock.now += CALM_AFTER - 1.0
    assert await alarm.switch()
    assert alarm.switched.asked == [True, False, True]


async def test_a_small_share_of_the_rows_is_no_reason_to_end_the_silence_early(
    clock: Clock,
) -> None:
    alarm = Alarm(clock)
    await loud(alarm)
    began = clock.now
    while clock.now < began + SILENCE_SECONDS:
        assert not await alarm.switch()
        clock.now += 1.0
        alarm.wakeup.found(20)
    clock.now += 1.0
    assert await alarm.switch()


async def test_as_many_notifications_as_are_bearable_are_kept(clock: Clock) -> None:
    alarm = Alarm(clock)
    await alarm.switch()
    for _ in range(10):
        alarm.notifications(LOUD_RATE - 50)
        alarm.wakeup.found(100)
        await alarm.switch()
    assert alarm.switched.asked == [True]


async def test_whoever_still_hears_too_much_says_so_again(clock: Clock) -> None:
    alarm = Alarm(clock)
    await loud(alarm)
    alarm.switched.on = True
    alarm.notifications(LOUD_RATE + 50)
    assert not await alarm.switch()
    assert alarm.switched.asked == [True, False, False]
    alarm.notifications(LOUD_RATE - 50, seconds=3)
    alarm.wakeup.found(1)
    assert not await alarm.switch()
    assert alarm.switched.asked == [True, False, False]


async def test_a_sleeper_makes_sure_now_and_then_that_it_will_be_woken(clock: Clock) -> None:
    alarm = Alarm(clock)
    await alarm.switch()
    clock.now += MEND_SECONDS
    assert not await alarm.switch(), "nothing was missed"
    alarm.switched.on = False
    clock.now += MEND_SECONDS
    assert await alarm.switch(), "something may have been missed"
    assert alarm.switched.asked == [True, True, True]


async def test_whoever_is_busy_does_not_make_sure_of_anything(clock: Clock) -> None:
    alarm = Alarm(clock)
    await alarm.switch()
    clock.now += MEND_SECONDS
    alarm.wakeup.found(1)
    assert not await alarm.switch()
    assert alarm.switched.asked == [True]


async def test_without_a_listener_the_switch_is_not_touched(clock: Clock) -> None:
    deaf = Alarm(clock)
    deaf.wakeup.listening(active=False)
    polling = Alarm(clock, notify_possible=False)
    polling.wakeup.listening(active=True)
    clock.now += 10.0
    assert not await deaf.switch()
    assert not await polling.switch()
    assert deaf.switched.asked == polling.switched.asked == []


async def test_whoever_listens_again_asks_again(clock: Clock) -> None:
    alarm = Alarm(clock)
    clock.now += SLEEPY_AFTER
    await alarm.switch()
    alarm.wakeup.listening(active=False)
    alarm.wakeup.listening(active=True)
    assert await alarm.switch()
    assert alarm.switched.asked == [True, True]


async def test_an_answer_that_was_not_written_is_tried_again(clock: Clock) -> None:
    class Broken(Switch):
        async def execute(self, _statement: bytes, _parameters: dict[str, bool]) -> int:
            raise TimeoutError

    alarm = Alarm(clock)
    clock.now += SLEEPY_AFTER
    alarm.switched = Broken()
    with pytest.raises(TimeoutError):
        await alarm.switch()
    alarm.switched = Switch()
    assert await alarm.switch()


async def test_polling_slows_down_while_it_finds_nothing_and_is_quick_after_work() -> None:
    wakeup = Wakeup(max_interval=1.0, notify_possible=False)
    intervals = []
    for _ in range(10):
        wakeup.found(0)
        intervals.append(wakeup._interval)
    assert intervals == sorted(intervals)
    assert intervals[-1] == 1.0
    wakeup.found(1)
    assert wakeup._interval == FIRST_INTERVAL


async def test_in_the_silence_polling_stays_quick(clock: Clock) -> None:
    alarm = Alarm(clock)
    await loud(alarm)
    for _ in range(10):
        alarm.wakeup.found(0)
    assert alarm.wakeup._interval == SILENT_INTERVAL
    clock.now += CALM_AFTER
    for _ in range(10):
        alarm.wakeup.found(0)
    assert alarm.wakeup._interval == 1.0


@pytest.mark.parametrize("wake", ["notified", "ring", "nudge"])
async def test_a_sleeper_wakes_at_once_for_a_reason(wake: str) -> None:
    wakeup = Wakeup(max_interval=100.0, notify_possible=True)
    wakeup._interval = 100.0
    async with waiting(wakeup):
        getattr(wakeup, wake)()


@pytest.mark.parametrize("wake", ["notified", "ring", "nudge"])
async def test_what_happens_between_two_sleeps_is_not_slept_through(wake: str) -> None:
    wakeup = Wakeup(max_interval=100.0, notify_possible=True)
    wakeup._interval = 100.0
    getattr(wakeup, wake)()
    async with waiting(wakeup):
        pass
    if wake != "ring":
        task = asyncio.create_task(wakeup.wait())
        await asyncio.sleep(0.01)
        assert not task.done()
        task.cancel()


async def test_a_sleeper_wakes_by_itself_when_its_interval_is_over() -> None:
    wakeup = Wakeup(max_interval=0.001, notify_possible=False)
    wakeup.found(0)
    async with waiting(wakeup):
        pass


async def test_whoever_keeps_coming_too_late_steps_back_but_never_for_long() -> None:
    wakeup = Wakeup(max_interval=1.0, notify_possible=True)
    for _ in range(1000):
        wakeup.notified()
        wakeup.found(0)
    assert wakeup._in_vain == 1000
    wakeup.notified()
    async with asyncio.timeout(1):
        await wakeup.wait()
    wakeup.found(3)
    assert wakeup._in_vain == 0


async def test_a_single_notification_that_came_too_late_costs_no_latency(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "DEBOUNCE_STEP", 100.0)
    monkeypatch.setattr(module, "MAX_DEBOUNCE", 100.0)
    wakeup = Wakeup(max_interval=100.0, notify_possible=True)
    wakeup._interval = 100.0
    wakeup.notified()
    wakeup.found(0)
    wakeup.notified()
    async with asyncio.timeout(5):
        await wakeup.wait()


async def test_what_comes_while_somebody_steps_back_is_claimed_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "DEBOUNCE_STEP", 0.02)
    wakeup = Wakeup(max_interval=100.0, notify_possible=True)
    wakeup.notified()
    wakeup.found(0)
    wakeup.notified()
    wakeup.found(0)
    wakeup._interval = 100.0
    wakeup.notified()
    async with waiting(wakeup) as stepping_back:
        assert not stepping_back.done()
        wakeup.notified()
    assert not wakeup._rung.is_set()
