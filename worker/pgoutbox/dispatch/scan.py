"""Where the next claim of a destination begins. Pure: clock and findings come from outside.

An index keeps an entry for every row that left it until vacuum may remove it, and with a held xmin
horizon (a long report, an idle replication slot) it may not for hours. A claim that begins at the
front then steps over all of them each time, so most claims begin further on: at the last row found
while there is more than there was room for, or a few seconds ago. What became visible behind that
point, because its transaction took long or a worker gave it back, is found by a sweep from the
front, once in a while.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from pgoutbox.dispatch.pace import LONGEST_PAUSE, SHARE, Pace

if TYPE_CHECKING:
    from collections.abc import Container, Iterable

RECENT_SECONDS = 10.0
"""Transactions up to this long never wait for a sweep."""
SWEEP_SECONDS = 1.0
"""Default of the longest that anything behind the starting point waits."""


class Place(NamedTuple):
    """A place in the order of unordered messages: when due, in microseconds, and the row's id."""

    microseconds: int
    id: int


class Start(NamedTuple):
    """Where a claim begins: behind ``place``, or `RECENT_SECONDS` ago, or at the front."""

    place: Place | None = None
    recent: bool = False


FRONT = Start()
RECENT = Start(recent=True)


@dataclass(slots=True)
class ReadyScan:
    """The unordered messages of one destination."""

    sweep_every: float = SWEEP_SECONDS
    _place: Place | None = None
    """The last row that was found, while there may be more behind it."""
    _sweeps: Pace = field(init=False)

    def __post_init__(self) -> None:
        self._sweeps = Pace(self.sweep_every)

    def start(self, now: float) -> Start:
        """Where the claim that is about to be sent begins."""
        if self._sweeps.due(now):
            return FRONT
        return Start(self._place, recent=self._place is None)

    def brought(self, start: Start, last: Place | None, *, full: bool, now: float) -> None:
        """The claim from ``start`` worked; ``last`` row that it took, ``full``: perhaps not all."""
        self._place = last if full else None
        if start == FRONT:
            self._sweeps.answered(now)

    def failed(self, start: Start, *, slow: bool) -> None:
        """The claim from ``start`` was not answered; ``slow``: it took longer than it may."""
        if start == FRONT:
            self._sweeps.failed(slow=slow)

    def missed(self, start: Start, now: float) -> bool:
        """It found nothing of what there should be; whether another one at once may."""
        if start == FRONT:
            return False
        self._sweeps.hasten()
        return self._sweeps.is_due(now)


MAX_RUN = 100
FIRST_RUN = 10
RUN_SECONDS = 0.1
"""What one run may take: whoever shares the worker with its lane waits no longer for a slot."""
WEIGHT = 0.2


@dataclass(slots=True)
class RunLength:
    """How many messages of one lane are claimed together, by how long their publishes take.

    A run is held by one worker from its claim to its last finalize, and costs one claim. So it is
    long where publishes are quick, and a single message where they are slow.
    """

    _seconds: float | None = None

    def observe(self, seconds: float) -> None:
        """One publish of an ordered message took so long."""
        before = seconds if self._seconds is None else self._seconds
        self._seconds = before + WEIGHT * (seconds - before)

    @property
    def rows(self) -> int:
        """From 1 to `MAX_RUN`."""
        if self._seconds is None:
            return FIRST_RUN
        if self._seconds * MAX_RUN <= RUN_SECONDS:
            return MAX_RUN
        return max(int(RUN_SECONDS / self._seconds), 1)


MAX_STEPS = 500
"""Lanes that one claim looks at, at most; some microseconds each."""
FRESH = 100
"""Newly due messages whose lanes one claim looks at."""
MAX_HOT = 64


class Hot(NamedTuple):
    """A lane that had more than one run."""

    head: int
    """The row that was its head at the last claim."""
    seen_at: float


@dataclass(slots=True)
class LaneScan:
    """The lanes of one destination: a walk in circles, with shortcuts to new and to hot lanes."""

    sweep_every: float = SWEEP_SECONDS
    cursor: str = ""
    """The last key that was looked at, whether or not its lane could be claimed."""
    walking: bool = False
    """The present circle has not come round since something was found."""
    steps: int = MAX_STEPS
    hot: dict[str, Hot] = field(default_factory=dict)
    _from: str = ""
    _seconds: float = 0.0
    """What the claims of this circle took."""
    _wrapped: bool = False
    _rest_until: float = float("-inf")
    _allowed_at: float = float("-inf")

    @property
    def careful(self) -> bool:
        """A claim failed for something in a row: few lanes at a time, and one message of each."""
        return self.steps < MAX_STEPS

    def begin(self, now: float) -> None:
        """Something may be due: walk round once, unless that was done in vain just now."""
        if not self.walking and now >= self._rest_until:
            self._start()

    def hasten(self) -> None:
        """There is a reason to walk before its time, if its cost allows."""
        self._rest_until = min(self._rest_until, self._allowed_at)

    def _start(self) -> None:
        self.walking = True
        self._from = self.cursor
        self._seconds = 0.0
        self._wrapped = False

    def walked(self, cursor: str, *, found: bool, ended: bool, sent: float, now: float) -> None:
        """A claim looked at the lanes up to ``cursor``; ``ended``: there are none behind it.

        ``found``: it took some of them, or left some for lack of room.
        """
        self._seconds += now - sent
        came_round = self._wrapped and cursor.encode() >= self._from.encode()
        self.cursor = cursor
        if ended:
            came_round = came_round or self._wrapped or not self._from
            self._wrapped = True
            self.cursor = ""
        if found:
            self._start()
        elif came_round:
            self.walking = False
            self._allowed_at = now + min(SHARE * self._seconds, LONGEST_PAUSE)
            self._rest_until = max(now + self.sweep_every, self._allowed_at)

    def took(self, lane: str, head: int, count: int, run: int, now: float) -> None:
        """A run of ``count`` was claimed where ``run`` were asked for."""
        self.hot.pop(lane, None)
        if count >= run:
            self.hot[lane] = Hot(head, now)
            if len(self.hot) > MAX_HOT:
                del self.hot[next(iter(self.hot))]

    def tries(self, held: Container[str], limit: int) -> list[str]:
        """Hot lanes that this worker holds nothing of, those that waited longest first."""
        return [lane for lane in self.hot if lane not in held][:limit]

    def missed(self, lanes: Iterable[str]) -> None:
        """These were tried, and their heads are somebody else's, or not due, or none."""
        for lane in lanes:
            self.hot.pop(lane, None)

    def head(self, lane: str, now: float) -> int:
        """The row from which on to look for the lane's head; 0 once that is too long ago."""
        hot = self.hot[lane]
        return hot.head if now - hot.seen_at < self.sweep_every else 0

    def failed(self) -> bool:
        """The claim met a row that cannot be claimed. True: it is the head of the next lane."""
        alone = self.steps == 1
        self.steps = max(self.steps // 8, 1)
        return alone

    def worked(self) -> None:
        """The claim met no such row."""
        self.steps = min(self.steps * 2, MAX_STEPS)


@dataclass(slots=True)
class Scans:
    """What is remembered of one destination from claim to claim."""

    ready: ReadyScan
    lanes: LaneScan
    ready_hungry: bool = False
    """There were more unordered messages due than room when it was last asked."""
    lanes_hungry: bool = False
    ordered_due: bool = False
    """Due messages with an ordering key were seen since its lanes were last asked."""
    quiet_until: float = 0.0
    """No unordered message was due, and nothing has spoken of any since."""
    notified: bool = False
    """Something was committed, for one of the destinations, since it was last asked."""
    parity: int = 0
    """Who gets the odd slot: unordered messages or lanes."""
    turn: int = 0
    """How often its lanes were asked."""
    probes: int = 0
    """How often messages were sought that may find out whether the destination works again."""

    @property
    def hungry(self) -> bool:
        """More is due than there was room for."""
        return self.ready_hungry or self.lanes_hungry
