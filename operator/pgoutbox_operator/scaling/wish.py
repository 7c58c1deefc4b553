"""What would be right now, before bounds and smoothing."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from pgoutbox_operator.scaling import idle, knee, pressure
from pgoutbox_operator.scaling.caps import useful
from pgoutbox_operator.scaling.decision import Limit, Reason
from pgoutbox_operator.scaling.demand import DEADLINE

if TYPE_CHECKING:
    from pgoutbox_operator.scaling.demand import Demand
    from pgoutbox_operator.scaling.state import State
    from pgoutbox_operator.scaling.throughput import Rates
    from pgoutbox_operator.scaling.tick import Tick


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """So many, and why."""

    replicas: int
    reason: Reason
    limited_by: Limit | None = None
    urgent: bool = False
    at_once: bool = False
    """A smaller number need not have been enough for the whole window."""


def wish(
    state: State, rates: Rates, needed: Demand | None, tick: Tick, *, room: int
) -> tuple[State, Wish]:
    """The first of these that applies. ``room``: no more replicas than these are to be had."""
    if not tick.current:
        return state, _wake(needed, tick)
    if idle.is_idle(state, tick):
        return state, Wish(replicas=0, reason=Reason.IDLE, at_once=True)
    if state.limited:
        state, limited = _limited(state, rates, needed, tick, room)
        if limited is not None:
            return state, limited
    return state, _below_knee(_within_use(_normal(needed, tick), tick), state, tick)


def _wake(needed: Demand | None, tick: Tick) -> Wish:
    if not idle.has_work(tick):
        return Wish(replicas=0, reason=Reason.IDLE)
    most = tick.policy.activation or tick.policy.max_replicas
    wanted = needed.up if needed is not None else 1
    return Wish(replicas=max(1, min(wanted, most)), reason=Reason.WAKE, urgent=True)


def _limited(
    state: State, rates: Rates, needed: Demand | None, tick: Tick, room: int
) -> tuple[State, Wish | None]:
    goal = _goal(state, needed, tick, room)
    state, stepped = pressure.recover(state, rates, tick, goal)
    if not state.limited:
        return state, None
    if stepped > tick.current:
        return state, Wish(
            replicas=stepped, reason=Reason.RECOVERING, limited_by=Limit.DOWNSTREAM_LIMITED
        )
    return state, Wish(
        replicas=max(1, pressure.matching(state, rates, tick)),
        reason=Reason.DOWNSTREAM_LIMITED,
        limited_by=Limit.DOWNSTREAM_LIMITED,
        at_once=True,
    )


def _goal(state: State, needed: Demand | None, tick: Tick, room: int) -> int:
    """What the recovery is over with: all that is needed, or all that may be had."""
    if needed is None or tick.policy.paused in ("ScaleOut", "All"):
        return tick.current
    caps = (knee.most(state, tick), useful(tick.outbox))
    return min([needed.up, room, *(cap for cap in caps if cap is not None)])


def _normal(needed: Demand | None, tick: Tick) -> Wish:
    current = tick.current
    if needed is None:
        return Wish(replicas=current, reason=Reason.STEADY)
    if tick.outbox.capped and tick.outbox.oldest_ready_age > DEADLINE * tick.policy.objective:
        # More than can be counted, and late: nobody knows how many are enough.
        most = max(tick.policy.max_replicas, current)
        return Wish(replicas=most, reason=Reason.BACKLOG, urgent=True)
    if needed.up > current:
        why = Reason.ARRIVALS if needed.by_arrivals >= needed.up else Reason.BACKLOG
        return Wish(replicas=needed.up, reason=why, urgent=needed.urgent)
    if tick.outbox.capped:
        return Wish(replicas=current, reason=Reason.STEADY)
    if needed.down < current:
        return Wish(replicas=max(1, needed.down), reason=Reason.SURPLUS)
    return Wish(replicas=current, reason=Reason.STEADY)


def _below_knee(wanted: Wish, state: State, tick: Tick) -> Wish:
    most = knee.most(state, tick)
    if most is None or wanted.replicas <= most:
        return wanted
    return Wish(
        replicas=most,
        reason=Reason.DATABASE_BOUND,
        limited_by=Limit.DATABASE_BOUND,
        at_once=True,
    )


def _within_use(wanted: Wish, tick: Tick) -> Wish:
    most = useful(tick.outbox)
    if most is None or wanted.replicas <= max(most, tick.current):
        return wanted
    reason = wanted.reason if most > tick.current else Reason.BOUNDS
    bounded = max(most, tick.current)
    return replace(wanted, replicas=bounded, reason=reason, limited_by=Limit.ORDERING_KEYS)
