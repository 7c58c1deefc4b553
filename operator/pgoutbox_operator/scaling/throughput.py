"""Rates out of counters: what the fleet got through, how busy it was, and what arrived.

"True processing rate" is what DS2 calls messages per second of *useful* time (Kalavri et al.,
"Three steps is all you need", OSDI 2018): it tells what a replica could do from what it did, so
that nothing has to be driven to its limit to be measured.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from pgoutbox_operator.scaling.opened import grown
from pgoutbox_operator.scaling.state import Beat

if TYPE_CHECKING:
    from pgoutbox_operator.scaling.policy import Policy
    from pgoutbox_operator.scaling.sample import Outbox, Worker
    from pgoutbox_operator.scaling.state import State

FASTER, SLOWER = 0.6, 0.4
"""Weights of the newest arrival rate where it is above and below the estimate: being late costs
users, being early costs a replica for a while."""
LEARN = 0.3
BUSY_ENOUGH = 0.3
"""Below so many fully used replicas, a rate per replica is mostly noise."""
BEHIND = 10.0
"""Messages that have waited for so many seconds found no room: then every replica is fully used,
whatever share of its slots that takes. The rest may belong to other destinations, or wait for a
rate limit."""
LEAST_SHARE = 0.01
FORGET = 0.02
"""The same, back, while nothing waits: what filled them may be over. Should it not be, they fall
behind for a moment, and `LEARN` is quick."""
CREDIBLE = 0.75
"""Above it they mean what they say: pods that have just started make the rest of the difference."""
SAME_BEAT = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Rates:
    """Of the whole fleet, per second."""

    finished: float = 0.0
    attempts: float = 0.0
    """This and `failed` of those workers that have run for long enough to judge by."""
    failed: float = 0.0
    busy: float = 0.0
    """In fully used replicas."""
    replicas: int = 0
    """Those that were measured and are not draining."""

    @property
    def utilization(self) -> float:
        """Of the average replica."""
        return min(self.busy / self.replicas, 1.0) if self.replicas else 0.0

    @property
    def failing(self) -> float:
        """Share of the attempts that failed."""
        return self.failed / self.attempts if self.attempts else 0.0


def measure(state: State, outbox: Outbox, policy: Policy) -> tuple[State, Rates]:
    """What happened since the last sample, and the estimates that it changes."""
    told, beats = _sum_of(state, outbox, policy)
    full, rates = _calibrated(state.full, told, outbox, policy)
    known = replace(
        state,
        beats=beats,
        full=full,
        sampled_at=outbox.at,
        undelivered=outbox.undelivered,
        capped=outbox.capped,
        arrivals=_arrivals(state, outbox, rates),
        rate=_rate(state.rate if state.rate is not None else policy.seed_rate, rates, policy),
    )
    return known, rates


def _sum_of(state: State, outbox: Outbox, policy: Policy) -> tuple[Rates, tuple[Beat, ...]]:
    before = {beat.incarnation: beat for beat in state.beats}
    fresh = [worker for worker in outbox.workers if worker.seen_age <= policy.stale]
    beats = [_beat(before.get(worker.incarnation), worker, outbox.at, policy) for worker in fresh]
    measured = sum(
        1
        for worker, beat in zip(fresh, beats, strict=True)
        if worker.running and (worker.incarnation in before or _young(worker, policy))
    )
    known = {worker.incarnation for worker in grown(fresh)}
    judges = [beat for beat in beats if beat.incarnation in known]
    rates = Rates(
        finished=sum(beat.finished_rate for beat in beats),
        attempts=sum(beat.attempts_rate for beat in judges),
        failed=sum(beat.failed_rate for beat in judges),
        busy=sum(beat.busy_rate for beat in beats),
        replicas=measured,
    )
    return rates, tuple(beats)


def _calibrated(full: float, told: Rates, outbox: Outbox, policy: Policy) -> tuple[float, Rates]:
    """What workers say of a full replica, and the rates with a full one for a unit."""
    behind = outbox.oldest_ready_age > BEHIND and told.replicas > 0
    if behind and told.failing < policy.recovered:
        full += LEARN * (max(told.utilization, LEAST_SHARE) - full)
    elif not outbox.ready:
        full += FORGET * (1.0 - full)
    if full > CREDIBLE:
        return full, told
    most = max(told.busy, float(told.replicas))
    return full, replace(told, busy=most if behind else min(told.busy / full, most))


def _beat(before: Beat | None, worker: Worker, now: float, policy: Policy) -> Beat:
    at = now - worker.seen_age
    fresh = Beat(
        incarnation=worker.incarnation,
        at=at,
        finished=worker.finished,
        attempts=worker.attempts,
        failed=worker.failed,
        busy_seconds=worker.busy_seconds,
    )
    if before is None:
        if not _young(worker, policy):
            # The mean over days says nothing of now; the next heartbeat will.
            return fresh
        before = Beat(
            incarnation="", at=at - worker.uptime, finished=0, attempts=0, failed=0, busy_seconds=0
        )
    seconds = at - before.at
    if seconds < -SAME_BEAT:
        # Another server's clock, after a failover; the next heartbeat is measured by it as well.
        return fresh
    if seconds < SAME_BEAT:
        return before if before.incarnation else fresh
    return replace(
        fresh,
        finished_rate=max(0.0, (worker.finished - before.finished) / seconds),
        attempts_rate=max(0.0, (worker.attempts - before.attempts) / seconds),
        failed_rate=max(0.0, (worker.failed - before.failed) / seconds),
        busy_rate=min(max(0.0, (worker.busy_seconds - before.busy_seconds) / seconds), 1.0),
    )


def _young(worker: Worker, policy: Policy) -> bool:
    return worker.uptime <= policy.stale


def _arrivals(state: State, outbox: Outbox, rates: Rates) -> float | None:
    """By the balance of the flow: what is there now, was there before or arrived meanwhile."""
    if state.sampled_at is None or state.capped or outbox.capped:
        return state.arrivals
    seconds = outbox.at - state.sampled_at
    if seconds < 1.0:
        return state.arrivals
    newest = max(0.0, (outbox.undelivered - state.undelivered) / seconds + rates.finished)
    if state.arrivals is None:
        return newest
    weight = FASTER if newest > state.arrivals else SLOWER
    return state.arrivals + weight * (newest - state.arrivals)


def _rate(before: float | None, rates: Rates, policy: Policy) -> float | None:
    if rates.busy <= BUSY_ENOUGH or rates.failing >= policy.recovered or not rates.finished:
        return before
    newest = rates.finished / rates.busy
    return newest if before is None else before + LEARN * (newest - before)
