"""Judges a history of lanes: who published what, when, and what the table said meanwhile.

Pure. Whatever the drill recorded comes in as frozen values, and every promise that it breaks comes
out as a line. The commit order is never read off the ids: each message brings the window in which
its transaction committed, and one message precedes another only where their windows do not touch.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from itertools import accumulate
from math import inf
from operator import attrgetter
from typing import TYPE_CHECKING, NamedTuple

from tests.support.order_replay import Change, replay

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

TAKEN = "taken"
"""The outcome of a publish that the destination took."""
SLACK = 0.05
"""Seconds that two readings of the machine's clock, one of them the server's, may be apart."""


class Enqueued(NamedTuple):
    """One committed message. Times in seconds, on the machine's clock."""

    message: str
    destination: str
    lane: str | None
    earliest: float
    """Its transaction did not commit before."""
    latest: float
    """Its transaction had committed by then. Equal to ``earliest`` where the server tells."""
    transaction: int
    position: int
    """Among all that its transaction enqueued."""
    row: int = 0
    """Its id. The order is never taken from it, only compared with it."""


class Publish(NamedTuple):
    """One call of a publisher."""

    message: str
    version: int
    """Of the lease under which it was called."""
    worker: str
    """One life of one worker."""
    destination: str
    """The one that this publisher was opened for."""
    began: float
    ended: float
    """Also the death of a worker that was killed meanwhile."""
    outcome: str


class Pause(NamedTuple):
    """A time during which a life of a worker was stopped, from before the one signal to before the
    other."""

    worker: str
    since: float
    until: float


@dataclass(frozen=True, slots=True)
class History:
    """Everything that is known of one drill."""

    enqueued: Sequence[Enqueued]
    publishes: Sequence[Publish]
    changes: Sequence[Change]
    """What each statement made of the rows, in the order of the statements."""
    pauses: Sequence[Pause] = ()


@dataclass(slots=True)
class Verdict:
    """What was broken, and what happened that is allowed and worth knowing."""

    problems: list[str] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)

    def __str__(self) -> str:
        shown = [*self.problems[:20], *(["..."] if len(self.problems) > 20 else [])]
        counts = ", ".join(f"{name}: {count}" for name, count in sorted(self.counts.items()))
        return "\n".join([f"{len(self.problems)} problems", *shown, counts])


def judge(history: History) -> Verdict:
    """Everything that the history breaks."""
    verdict = Verdict()
    book = Book.of(history)
    for check in CHECKS:
        verdict.problems += check(book)
    replayed = replay(history.changes)
    verdict.problems += replayed.problems
    verdict.counts.update(replayed.counts)
    verdict.counts.update(allowed(book))
    return verdict


@dataclass(frozen=True, slots=True)
class Book:
    """The history, looked up by message and by lane."""

    history: History
    known: Mapping[str, Enqueued]
    lanes: Mapping[str, Sequence[Enqueued]]
    """By the end of the commit's window, then as the transaction enqueued them."""
    publishes: Mapping[str, Sequence[Publish]]
    """Of each lane, by their beginning."""
    last: Mapping[str, Change]
    """How each message ended."""
    overtaken: Mapping[tuple[str, int], float]
    """When the lease of a message and version was taken over, having run out."""
    leased: Mapping[tuple[str, int], float]
    """When the lease of a message and version ended: by itself, renewals included, or given up."""

    @classmethod
    def of(cls, history: History) -> Book:
        known = {one.message: one for one in history.enqueued}
        lanes: defaultdict[str, list[Enqueued]] = defaultdict(list)
        for one in sorted(history.enqueued, key=attrgetter("latest", "transaction", "position")):
            if one.lane is not None:
                lanes[one.lane].append(one)
        publishes: defaultdict[str, list[Publish]] = defaultdict(list)
        for call in sorted(history.publishes, key=attrgetter("began")):
            if call.message in known and (lane := known[call.message].lane) is not None:
                publishes[lane].append(call)
        return cls(history, known, lanes, publishes, *leases(history.changes))

    def taken_over(self, call: Publish) -> float:
        """When the message was taken over from this publish's lease; never is infinity."""
        return self.overtaken.get((call.message, call.version), inf)

    def lease_ended(self, call: Publish) -> float:
        """When this publish's lease ended; always, where there was none."""
        return self.leased.get((call.message, call.version), -inf)

    def lost_by(self, now: float, *calls: Publish) -> bool:
        """Whether the message of any of these had been taken over by then."""
        return any(self.taken_over(call) <= now for call in calls)

    def settled(self, message: str, calls: Iterable[Publish], worker: str) -> float:
        """From when on this worker may publish those behind it."""
        # A success whose lease was taken over later was never written, so it freed nobody but the
        # one who saw it.
        kept = [call for call in calls if self.taken_over(call) == inf or self.saw(call, worker)]
        taken = [call.ended for call in kept if call.outcome == TAKEN]
        if taken:
            return min(taken)
        end = self.last.get(message)
        if end is None or not end.left_lane:
            return inf
        return max((call.ended for call in kept), default=-inf)

    def saw(self, call: Publish, worker: str) -> bool:
        """Whether this is a publish of the worker's own that ended while it had its lease."""
        return call.worker == worker and call.ended <= self.taken_over(call)


def leases(
    changes: Iterable[Change],
) -> tuple[dict[str, Change], dict[tuple[str, int], float], dict[tuple[str, int], float]]:
    """`Book.last`, `Book.overtaken` and `Book.leased`."""
    last: dict[str, Change] = {}
    overtaken: dict[tuple[str, int], float] = {}
    leased: dict[tuple[str, int], float] = {}
    for change in changes:
        before = last.get(change.message)
        if before is not None and before.lease_until is not None:
            leased[before.message, before.version] = min(before.lease_until, change.at)
            if before.expired(change.at) and change.version > before.version:
                overtaken[before.message, before.version] = change.at
        if change.lease_until is not None:
            leased[change.message, change.version] = change.lease_until
        last[change.message] = change
    return last, overtaken, leased


def unknown(book: Book) -> Iterator[str]:
    """Publishes of what was never committed."""
    for call in book.history.publishes:
        if call.message not in book.known:
            yield f"{call.message} was published by {call.worker}, and never committed"


def foreign(book: Book) -> Iterator[str]:
    """Publishes to a destination that the message is not for."""
    for call in book.history.publishes:
        known = book.known.get(call.message)
        if known is not None and known.destination != call.destination:
            yield (
                f"{call.message} is for {known.destination}, and {call.worker} published it"
                f" to {call.destination}"
            )


def unfinished(book: Book) -> Iterator[str]:
    """Committed messages that are neither published nor buried, nor wait behind a dead head."""
    took = {call.message for call in book.history.publishes if call.outcome == TAKEN}
    excused: set[str] = set()
    for messages in book.lanes.values():
        names = [one.message for one in messages]
        dead = [place for place, name in enumerate(names) if blocks(book.last.get(name))]
        excused.update(names[dead[0] :] if dead else ())
    for one in book.history.enqueued:
        end = book.last.get(one.message)
        if end is None:
            yield f"{one.message} was committed and is not in the table"
        elif end.status == "done" and one.message not in took:
            yield f"{one.message} is done and was never published"
        elif end.status in ("pending", "processing") and one.message not in excused:
            yield f"{one.message} of lane {one.lane} is still {end.status}"


def blocks(end: Change | None) -> bool:
    """Whether this message is dead and holds up its lane."""
    return end is not None and end.status == "dead" and not end.left_lane


def misnumbered(book: Book) -> Iterator[str]:
    """Ids of a lane in another order than its commits."""
    for lane, messages in book.lanes.items():
        numbered = sorted(messages, key=attrgetter("row"))
        for before, after in inversions(numbered):
            yield f"lane {lane}: {after.row} committed before {before.row} and has the higher id"


def out_of_order(book: Book) -> Iterator[str]:
    """First successes of a lane in another order than its commits.

    Without those that came after the message had been taken over: they may arrive at any time.
    """
    for lane, calls in book.publishes.items():
        firsts = first_successes(call for call in calls if call.ended <= book.taken_over(call))
        for before, after in inversions([book.known[message] for message in firsts]):
            yield f"lane {lane}: {before.message} was published before {after.message}"


def first_successes(calls: Iterable[Publish]) -> list[str]:
    """The messages in the order in which each was taken for the first time."""
    taken = sorted((call for call in calls if call.outcome == TAKEN), key=attrgetter("ended"))
    return list(dict.fromkeys(call.message for call in taken))


def inversions(sequence: Sequence[Enqueued]) -> Iterator[tuple[Enqueued, Enqueued]]:
    """Pairs of the sequence whose second certainly committed first."""
    latest: Enqueued | None = None
    highest: dict[int, Enqueued] = {}
    for one in sequence:
        if latest is not None and one.latest < latest.earliest:
            yield latest, one
        sibling = highest.setdefault(one.transaction, one)
        if one.position < sibling.position:
            yield sibling, one
        else:
            highest[one.transaction] = one
        if latest is None or one.earliest > latest.earliest:
            latest = one


def out_of_turn(book: Book) -> Iterator[str]:
    """Publishes, successful or not, of messages that had somebody unsettled before them.

    This is what keeps a lane behind its dead head, behind a backoff and behind a due time.
    """
    for lane, calls in book.publishes.items():
        turn = {worker: turns(book, lane, worker) for worker in {call.worker for call in calls}}
        for call in calls:
            ready, whom = turn[call.worker][call.message]
            if call.began < ready:
                yield (
                    f"lane {lane}: {call.message} was published ({call.outcome}) by {call.worker}"
                    f" {ready - call.began:.3f} s before {whom} was settled"
                )


def turns(book: Book, lane: str, worker: str) -> dict[str, tuple[float, str]]:
    """When all that precede each message were settled for this worker, and by which of them."""
    calls: defaultdict[str, list[Publish]] = defaultdict(list)
    for call in book.publishes[lane]:
        calls[call.message].append(call)
    settled = [
        (book.settled(one.message, calls[one.message], worker), one.message)
        for one in book.lanes[lane]
    ]
    nobody = (-inf, "")
    prefix = list(accumulate(settled, max, initial=nobody))
    ends = [one.latest for one in book.lanes[lane]]
    found: dict[str, tuple[float, str]] = {}
    siblings: dict[int, tuple[float, str]] = {}
    for one, own in zip(book.lanes[lane], settled, strict=True):
        before = siblings.get(one.transaction, nobody)
        found[one.message] = max(prefix[bisect_left(ends, one.earliest)], before)
        siblings[one.transaction] = max(before, own)
    return found


def together(book: Book) -> Iterator[str]:
    """Two publishes of a lane at once, although neither had lost its lease by then."""
    for lane, earlier, later in overlaps(book):
        if not book.lost_by(later.began, earlier, later):
            yield (
                f"lane {lane}: {later.worker} began {later.message} while {earlier.worker}"
                f" was publishing {earlier.message} under a lease that nobody had taken over"
            )


def overlaps(book: Book) -> Iterator[tuple[str, Publish, Publish]]:
    """Pairs of publishes of a lane that ran at the same time, in the order of their beginning."""
    for lane, calls in book.publishes.items():
        running: list[Publish] = []
        for call in calls:
            running = [one for one in running if one.ended > call.began]
            for one in running:
                yield lane, one, call
            running.append(call)


def overdue(book: Book) -> Iterator[str]:
    """Publishes that began although their lease had ended by then, or without any.

    A worker looks at the lease as it begins a publish, and stops some time before its end.
    """
    excused = set(stopped(book))
    for call in book.history.publishes:
        late = call.began - book.lease_ended(call)
        if late > SLACK and call.message in book.known and call not in excused:
            yield f"{call.worker} began {call.message} {late:.3f} s after its lease had ended"


def stopped(book: Book) -> Iterator[Publish]:
    """Those whose worker may have been stopped between its look at the lease and the call.

    Nothing else of that process runs between the two, so it can be no more than the first call
    after each stop, or one batch, and the lease must have lasted until it was stopped.
    """
    for pause in book.history.pauses:
        calls = [call for call in book.history.publishes if call.worker == pause.worker]
        first = min((call.began for call in calls if call.began >= pause.until), default=inf)
        for call in calls:
            if call.began == first and book.lease_ended(call) >= pause.since:
                yield call


CHECKS = (unknown, foreign, unfinished, misnumbered, out_of_order, out_of_turn, together, overdue)


def allowed(book: Book) -> Iterator[str]:
    """What may happen, in particular after a lease ran out, one word for each time it did."""
    for _, earlier, later in overlaps(book):
        if book.lost_by(later.began, earlier, later):
            yield "overlaps after a lease ran out"
    for calls in book.publishes.values():
        firsts = [book.known[message] for message in first_successes(calls)]
        yield from ("arrivals out of order after a lease ran out" for _ in inversions(firsts))
    late = [call for call in stopped(book) if call.began > book.lease_ended(call)]
    yield from (
        "publishes begun after the lease by a worker that was stopped before the call" for _ in late
    )
    taken = Counter(call.message for call in book.history.publishes if call.outcome == TAKEN)
    yield from ("repeats" for _ in range(taken.total() - len(taken)))
    yield from (f"publishes {call.outcome}" for call in book.history.publishes)
    yield from (f"messages {change.status}" for change in book.last.values())
