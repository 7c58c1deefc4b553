"""Samples for the control law, and a fleet that lives through some of them."""

from __future__ import annotations

from dataclasses import dataclass, field

from pgoutbox_operator.scaling import (
    Decision,
    Fleet,
    Outbox,
    Policy,
    Sample,
    State,
    Worker,
    decide,
)

POLICY = Policy(max_replicas=20)
SLOTS = 10


def outbox_of(
    at: float, *workers: Worker, ready: int = 0, age: float = 0.0, undelivered: int | None = None
) -> Outbox:
    """One look at the outbox: all that is undelivered is ready, where nothing else is said."""
    return Outbox(
        at=at,
        ready=ready,
        oldest_ready_age=age,
        undelivered=ready if undelivered is None else undelivered,
        workers=workers,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """What happens between two ticks, and what is there at the end."""

    ready: int = 0
    age: float = 0.0
    finished: int = 0
    """By each worker."""
    failed: int = 0
    busy: float = 0.5
    """Share of the time for which each was fully used."""
    away: bool = False
    """The database does not answer."""


@dataclass(slots=True)
class Story:
    """Ticks one after the other, with a Deployment that does at once what it is told."""

    policy: Policy = POLICY
    replicas: int = 1
    now: float = 0.0
    state: State = field(default_factory=State)
    decisions: list[Decision] = field(default_factory=list)
    _finished: int = 0
    _failed: int = 0
    _busy: float = 0.0

    def sample(self, look: Look, *, seconds: float = 15.0) -> Sample:
        """What is seen after so many seconds."""
        self.now += seconds
        self._finished += look.finished
        self._failed += look.failed
        self._busy += look.busy * seconds
        workers = [self._worker(n) for n in range(self.replicas)]
        outbox = outbox_of(1e6 + self.now, *workers, ready=look.ready, age=look.age)
        return Sample(fleet=Fleet(replicas=self.replicas), outbox=None if look.away else outbox)

    def tick(self, look: Look, *, seconds: float = 15.0) -> Decision:
        """See, decide, scale."""
        sample = self.sample(look, seconds=seconds)
        self.state, decision = decide(self.state, sample, self.now, policy=self.policy)
        self.replicas = decision.replicas
        self.decisions.append(decision)
        return decision

    def ticks(self, count: int, look: Look) -> Decision:
        """The same several times; the last decision."""
        for _ in range(count):
            decision = self.tick(look)
        return decision

    def _worker(self, number: int) -> Worker:
        return Worker(
            incarnation=str(number),
            seen_age=0.0,
            uptime=self.now + 100.0,
            slots=SLOTS,
            finished=self._finished,
            attempts=self._finished + self._failed,
            failed=self._failed,
            busy_seconds=self._busy,
        )
