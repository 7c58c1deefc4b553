"""Histories of lanes, told step by step, for the oracle's own tests."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Any

from hypothesis import strategies as st

from tests.support.order_oracle import TAKEN, Enqueued, History, Pause, Publish, Verdict, judge
from tests.support.order_replay import Change

LEASE = 10.0
PLACE = "default"


@dataclass
class Tale:
    """A history as it is told: who did what, one after the other."""

    now: float = 0.0
    enqueued: list[Enqueued] = field(default_factory=list)
    publishes: list[Publish] = field(default_factory=list)
    changes: list[Change] = field(default_factory=list)
    pauses: list[Pause] = field(default_factory=list)
    transactions: int = 0

    def tick(self, seconds: float = 1.0) -> float:
        self.now += seconds
        return self.now

    def commit(self, *messages: str, lane: str | None = "k") -> None:
        """One transaction; rows are numbered as they come."""
        self.transactions += 1
        at = self.tick()
        for position, message in enumerate(messages):
            row = len(self.enqueued) + 1
            self.enqueued.append(
                Enqueued(message, PLACE, lane, at, at, self.transactions, position, row)
            )
            self.changes.append(Change(self.transactions, at, row, message, lane, "pending", 0, 0))

    def last(self, message: str) -> Change:
        return next(one for one in reversed(self.changes) if one.message == message)

    def becomes(self, *messages: str, owner: str | None = None, **columns: Any) -> None:
        """One statement over these rows."""
        self.transactions += 1
        at = self.tick()
        for message in messages:
            changed = self.last(message)._replace(transaction=self.transactions, at=at, owner=owner)
            if owner:
                changed = changed._replace(status="processing", lease_until=at + LEASE)
            else:
                changed = changed._replace(lease_until=None)
            self.changes.append(changed._replace(**columns))

    def claims(self, owner: str, *messages: str) -> None:
        version = max(self.last(message).version for message in messages) + 1
        self.becomes(*messages, owner=owner, version=version)

    def publishes_it(
        self, owner: str, message: str, outcome: str = TAKEN, seconds: float = 1.0
    ) -> None:
        """One publish after the other, under the lease as it is."""
        began = self.tick()
        self.calls(owner, message, began, began + seconds, outcome)
        self.tick(seconds)

    def calls(
        self, owner: str, message: str, began: float, ended: float, outcome: str = TAKEN
    ) -> None:
        version = self.last(message).version
        self.publishes.append(Publish(message, version, owner, PLACE, began, ended, outcome))

    def finishes(self, *messages: str) -> None:
        self.becomes(*messages, status="done", left_lane=True)

    def delivers(self, owner: str, *messages: str) -> None:
        for message in messages:
            self.claims(owner, message)
            self.publishes_it(owner, message)
            self.finishes(message)

    def gives_back(self, *messages: str) -> None:
        self.becomes(*messages, status="pending")

    def buries(self, message: str, *, skipped: bool = False) -> None:
        self.becomes(message, status="dead", left_lane=skipped)

    @property
    def verdict(self) -> Verdict:
        return judge(History(self.enqueued, self.publishes, self.changes, self.pauses))

    @property
    def problems(self) -> list[str]:
        return self.verdict.problems

    @property
    def counts(self) -> dict[str, int]:
        return self.verdict.counts

    def refused(self, why: str) -> bool:
        """Whether every problem says so, and there is one."""
        return bool(self.problems) and all(why in problem for problem in self.problems)


@st.composite
def good_tales(draw: st.DrawFn) -> Tale:
    """Workers that do everything right, one statement or publish at a time."""
    tale = Tale()
    dice = random.Random(draw(st.integers()))
    owed: dict[str, list[str]] = {f"k{n}": [] for n in range(draw(st.integers(1, 3)))}
    for number in range(draw(st.integers(1, 8))):
        lane = dice.choice(list(owed))
        names = [f"{number}.{n}" for n in range(dice.randint(1, 4))]
        tale.commit(*names, lane=lane)
        owed[lane] += names
        if dice.random() < 0.5:
            work(tale, dice, owed[lane])
    for waiting in owed.values():
        while waiting:
            work(tale, dice, waiting)
    return tale


def work(tale: Tale, dice: random.Random, owed: list[str]) -> None:
    """One run of the lane, by any worker, that may fail at any place."""
    if not owed:
        return
    owner, run = dice.choice("abc"), owed[: dice.randint(1, 4)]
    tale.claims(owner, *run)
    for message in run:
        if dice.random() < 0.2:
            tale.publishes_it(owner, message, "RetryableError")
            done = run[: run.index(message)]
            if done:
                tale.finishes(*done)
            tale.gives_back(*run[len(done) :])
            del owed[: len(done)]
            return
        tale.publishes_it(owner, message)
    tale.finishes(*run)
    del owed[: len(run)]
