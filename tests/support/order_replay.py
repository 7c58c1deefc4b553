"""Replays what each statement made of the rows of a lane, and asks after each whether it may."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from math import inf
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence


class Change(NamedTuple):
    """A row as a statement left it. Times in seconds, on the server's clock."""

    transaction: int
    at: float
    """The statement's ``now()``."""
    row: int
    message: str
    lane: str | None
    status: str
    version: int
    attempts: int
    owner: str | None = None
    lease_until: float | None = None
    left_lane: bool = False
    """It holds up nobody any more."""

    def expired(self, now: float) -> bool:
        """Whether it is leased, and the lease has run out."""
        return self.lease_until is not None and self.lease_until < now


@dataclass(slots=True)
class Replayed:
    """What was wrong, and how often what is allowed happened."""

    problems: list[str] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)


def replay(changes: Sequence[Change]) -> Replayed:
    """Every statement that took what it might not take, or left a lane as it may never be."""
    found = Replayed()
    lanes: defaultdict[str, Lane] = defaultdict(Lane)
    rows: dict[int, Change] = {}
    for statement in statements(changes):
        found.problems += stolen(rows, statement)
        taken_over = sum(is_taken_over(rows.get(change.row), change) for change in statement)
        found.counts["leases taken over after they ran out"] += taken_over
        rows |= {change.row: change for change in statement}
        touched = {change.lane for change in statement if change.lane is not None}
        for change in statement:
            if change.lane is not None:
                lanes[change.lane].apply(change)
        for lane in touched:
            found.problems += (f"lane {lane}: {what}" for what in lanes[lane].broken())
    return found


def statements(changes: Iterable[Change]) -> Iterable[Sequence[Change]]:
    """The changes by transaction: those of two that run side by side are noted in turns."""
    found: defaultdict[int, list[Change]] = defaultdict(list)
    for change in changes:
        found[change.transaction].append(change)
    return found.values()


def stolen(rows: dict[int, Change], statement: Iterable[Change]) -> Iterator[str]:
    """Leases that were taken from an owner who still had time."""
    for change in statement:
        before = rows.get(change.row)
        if before is None or before.lease_until is None or change.version == before.version:
            continue
        if not before.expired(change.at):
            yield (
                f"row {change.row} was taken from {before.owner} by {change.owner}"
                f" {before.lease_until - change.at:.3f} s before its lease ran out"
            )


def is_taken_over(before: Change | None, change: Change) -> bool:
    """Whether this ends a lease that ran out."""
    return before is not None and before.expired(change.at) and change.version > before.version


class Lane:
    """The rows of a lane that still hold up others."""

    def __init__(self) -> None:
        self._rows: list[int] = []
        """Sorted by id."""
        self._leased: dict[int, Change] = {}
        self._now = -inf

    def apply(self, change: Change) -> None:
        """Take note of what became of one row."""
        # A statement that waited tells an old time.
        self._now = max(self._now, change.at)
        place = bisect_left(self._rows, change.row)
        is_here = place < len(self._rows) and self._rows[place] == change.row
        if change.left_lane and is_here:
            del self._rows[place]
        elif not (change.left_lane or is_here):
            self._rows.insert(place, change.row)
        if change.lease_until is None:
            self._leased.pop(change.row, None)
        else:
            self._leased[change.row] = change

    def broken(self) -> Iterator[str]:
        """What may not be, between any two statements.

        The rows under a live lease are the first ones, without a gap, and have one owner. So what
        fails in the middle of a run must give the rest back in the same statement.
        """
        held = {row: one for row, one in self._leased.items() if not one.expired(self._now)}
        owners = sorted({str(one.owner) for one in held.values()})
        if len(owners) > 1:
            yield f"{' and '.join(owners)} hold leases at the same time"
        gaps = [row for row in self._rows[: len(held)] if row not in held]
        if gaps:
            last = max(held)
            yield f"row {last} is leased by {held[last].owner} although row {gaps[0]} comes first"
