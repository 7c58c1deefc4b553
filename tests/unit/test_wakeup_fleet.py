"""The switch of a whole fleet, simulated: one flag, and workers who share the rows evenly."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pytest

from pgoutbox.dispatch.loudness import SILENCE_SECONDS, SILENT_INTERVAL, Loudness

if TYPE_CHECKING:
    from collections.abc import Callable

STEP = 0.005
FEW_FLIPS = 3


@dataclass
class Worker:
    """One who polls, and who is woken while the flag is on."""

    loudness: Loudness
    said: bool | None = None
    polls_at: float = 0.0
    interval: float = STEP


@dataclass
class Fleet:
    """Messages come one per transaction; the flag decides whether each notifies everybody."""

    size: int
    waiting: int = 0
    """Commits that wait for each other while the flag is on."""
    rng: random.Random = field(default_factory=lambda: random.Random(11))
    now: float = 0.0
    wanted: bool = False
    flips: list[float] = field(default_factory=list)
    notified: list[bool] = field(default_factory=list)

    def __post_init__(self) -> None:
        # Started one after the other, so that their windows do not coincide.
        self.workers = [Worker(Loudness(-0.37 * number)) for number in range(self.size)]

    def run(self, seconds: float, rate: Callable[[float], float]) -> None:
        """Let time pass with ``rate(now)`` messages per second."""
        backlog, end = 0, self.now + seconds
        while self.now < end:
            self.now += STEP
            fresh = self._arrivals(rate(self.now) * STEP)
            backlog += fresh
            self.notified.extend([self.wanted] * fresh)
            woken = self.wanted and fresh
            for worker in self.workers if woken else ():
                worker.loudness.heard(fresh, self.now)
            awake = [each for each in self.workers if woken or self.now >= each.polls_at]
            self.rng.shuffle(awake)
            for worker in awake:
                backlog -= self._claim(worker, min(backlog, 1 + backlog // self.size))

    def _arrivals(self, expected: float) -> int:
        whole = int(expected)
        return whole + (self.rng.random() < expected - whole)

    def _claim(self, worker: Worker, count: int) -> int:
        worker.loudness.found(count, self.now)
        longest = SILENT_INTERVAL if worker.loudness.silent(self.now) else 1.0
        worker.interval = STEP if count else min(worker.interval * 2, longest)
        worker.polls_at = self.now + worker.interval
        if worker.loudness.curious(self.now):
            worker.loudness.looked(self.waiting if self.wanted else 0, self.now)
        wanted = worker.loudness.wanted(self.now)
        if wanted is not None and wanted != worker.said:
            worker.said = wanted
            if wanted != self.wanted:
                self.wanted = wanted
                self.flips.append(self.now)
        return count


@pytest.mark.parametrize(
    ("size", "rate"), [(1, 1400), (3, 400), (4, 500), (10, 1400), (20, 400), (20, 2500)]
)
def test_a_loud_fleet_goes_without_notifications_and_does_not_flap(size: int, rate: float) -> None:
    fleet = Fleet(size)
    fleet.run(30.0, lambda _now: rate)
    assert len(fleet.flips) <= FEW_FLIPS
    assert fleet.notified.count(True) < 0.1 * len(fleet.notified)


@pytest.mark.parametrize("size", [1, 4])
def test_after_a_burst_steady_messages_are_notified_of_within_the_silence(size: int) -> None:
    fleet = Fleet(size)
    fleet.run(5.0, lambda _now: 1000.0)
    assert not fleet.wanted
    fleet.run(SILENCE_SECONDS + 1.0, lambda _now: 200.0)
    fleet.notified.clear()
    fleet.run(30.0, lambda _now: 200.0)
    assert fleet.notified.count(False) == 0
    assert len(fleet.flips) <= FEW_FLIPS


@pytest.mark.parametrize("size", [1, 4, 20])
def test_after_a_burst_that_nothing_follows_a_fleet_asks_again_soon(size: int) -> None:
    fleet = Fleet(size)
    fleet.run(5.0, lambda _now: 1000.0)
    fleet.run(5.0, lambda _now: 0.0)
    assert fleet.wanted


@pytest.mark.parametrize("size", [1, 4, 20])
def test_a_quiet_fleet_is_notified_of_everything_from_the_start(size: int) -> None:
    fleet = Fleet(size)
    fleet.run(1.0, lambda _now: 0.0)
    fleet.run(30.0, lambda _now: 200.0)
    assert fleet.notified.count(False) == 0


def test_a_load_that_comes_and_goes_costs_two_flips_each_time() -> None:
    fleet = Fleet(3)
    fleet.run(60.0, lambda now: 600.0 if now % 20 < 10 else 0.0)
    assert len(fleet.flips) <= 2 * 3 + 1


@pytest.mark.parametrize("size", [1, 4, 20])
def test_producers_who_keep_each_other_waiting_are_let_alone_most_of_the_time(size: int) -> None:
    fleet = Fleet(size, waiting=7)
    fleet.run(120.0, lambda _now: 160.0 if fleet.wanted else 2500.0)
    assert fleet.notified.count(True) < 0.02 * len(fleet.notified)
    # On and off again, once for each silence.
    assert len(fleet.flips) <= 2 * 120.0 / SILENCE_SECONDS + 1


def test_a_fleet_without_waiting_commits_stays_notified_at_two_hundred_a_second() -> None:
    fleet = Fleet(4)
    fleet.run(1.0, lambda _now: 0.0)
    fleet.run(120.0, lambda _now: 200.0)
    assert fleet.notified.count(False) == 0
    assert len(fleet.flips) == 1
