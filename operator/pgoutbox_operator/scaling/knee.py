"""When more replicas get nothing more through, because the database is what they wait for.

Found by trying: a fleet that has long been busy to the last slot, and whose backlog does not fall
all the same, does with fewer for a while. Where these get as much through, they stay.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

from pgoutbox_operator.scaling.state import Knee

if TYPE_CHECKING:
    from pgoutbox_operator.scaling.sample import Outbox
    from pgoutbox_operator.scaling.state import State
    from pgoutbox_operator.scaling.throughput import Rates
    from pgoutbox_operator.scaling.tick import Tick

SATURATED = 0.95
LONG_ENOUGH = 240.0
"""Seconds of saturation, with the same replicas, before it is tried."""
TRIAL = 90.0
SETTLING = 30.0
"""Of these, the first say nothing yet."""
FEWER = 0.6
AS_GOOD = 0.97
"""Of the throughput of more replicas: then fewer are as good."""
MEMORY = 16
"""Ticks that the mean looks back."""
REMEMBERED = 1800.0


def watch(state: State, rates: Rates, tick: Tick) -> State:
    """Measure, begin a trial, judge it."""
    knee = _measured(state.knee, rates, tick)
    if state.limited or not tick.policy.knee:
        knee = replace(knee, before=None, saturated_since=tick.now)
    elif knee.before is not None:
        knee = _judged(knee, tick)
    elif _suspicious(knee, tick):
        knee = _tried(knee, tick)
    return replace(state, knee=knee)


def most(state: State, tick: Tick) -> int | None:
    """More get nothing more through, as far as is known."""
    knee = state.knee
    return knee.cap if knee.cap is not None and tick.now < knee.cap_until else None


def _measured(knee: Knee, rates: Rates, tick: Tick) -> Knee:
    if tick.current != knee.replicas:
        trial = knee.before is not None and tick.current == knee.cap
        return Knee(
            replicas=tick.current,
            since=tick.now,
            saturated_since=tick.now,
            backlog=tick.outbox.undelivered,
            age=tick.outbox.oldest_ready_age,
            before=knee.before if trial else None,
            before_mean=knee.before_mean,
            proven=knee.proven and trial,
            cap=knee.cap,
            cap_until=knee.cap_until,
        )
    if not _is_saturated(rates, tick):
        return replace(
            knee,
            saturated_since=tick.now,
            backlog=tick.outbox.undelivered,
            age=tick.outbox.oldest_ready_age,
            mean=0.0,
            count=0,
        )
    if tick.now - knee.saturated_since <= tick.policy.tick:
        outbox = tick.outbox
        knee = replace(knee, backlog=outbox.undelivered, age=outbox.oldest_ready_age)
    if tick.now - knee.since < SETTLING:
        return knee
    mean = knee.mean + (rates.finished - knee.mean) / min(knee.count + 1, MEMORY)
    return replace(knee, mean=mean, count=knee.count + 1)


def _is_saturated(rates: Rates, tick: Tick) -> bool:
    """All of them, and nothing else keeps them from getting more through."""
    return (
        rates.utilization >= SATURATED
        and rates.failing < tick.policy.recovered
        and rates.replicas >= tick.current
        and tick.policy.paused == "None"
    )


def _suspicious(knee: Knee, tick: Tick) -> bool:
    long = tick.now - knee.saturated_since >= LONG_ENOUGH
    possible = tick.now >= knee.cap_until and _fewer(tick) < tick.current
    return long and possible and not _falls(knee, tick.outbox)


def _fewer(tick: Tick) -> int:
    """As few as a trial may have: one step, or nobody could tell what came of it."""
    policy, current = tick.policy, tick.current
    step = max(1, int(current * policy.down_share))
    return max(math.ceil(FEWER * current), current - step, policy.min_replicas, 1)


def _falls(knee: Knee, outbox: Outbox) -> bool:
    """Whether the backlog does; of one that cannot be counted, the age tells."""
    if outbox.capped:
        return outbox.oldest_ready_age < knee.age
    return not outbox.undelivered >= knee.backlog > 0


def _tried(knee: Knee, tick: Tick) -> Knee:
    return replace(
        knee,
        before=tick.current,
        before_mean=knee.mean,
        cap=min(_fewer(tick), tick.current - 1),
        cap_until=tick.now + TRIAL + 2 * tick.policy.down_period,
    )


def _judged(knee: Knee, tick: Tick) -> Knee:
    if tick.current != knee.cap or tick.now - knee.since < TRIAL or not knee.count:
        return knee
    if knee.mean < AS_GOOD * knee.before_mean:
        # That fewer are worse says nothing against more, unless these were tried and no better.
        cap = knee.before if knee.proven else None
        known = replace(knee, cap=cap, before=None, proven=False)
        return replace(known, cap_until=tick.now + REMEMBERED, saturated_since=tick.now)
    if _fewer(tick) >= tick.current:
        return replace(knee, before=None, cap_until=tick.now + REMEMBERED)
    # As good or better: perhaps still fewer are.
    return replace(_tried(knee, tick), proven=True)
