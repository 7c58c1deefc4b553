"""The walk of one tick: observe, estimate, wish, bound, smooth."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from pgoutbox_operator.scaling import idle, knee, pressure
from pgoutbox_operator.scaling.adopt import adopt, resume
from pgoutbox_operator.scaling.caps import Bounds, bounds
from pgoutbox_operator.scaling.decision import Decision, Limit, Numbers, Reason
from pgoutbox_operator.scaling.demand import demand
from pgoutbox_operator.scaling.hold import hold, unknown
from pgoutbox_operator.scaling.smoothing import needed_lately, remember, step_down, step_up
from pgoutbox_operator.scaling.throughput import Rates, measure
from pgoutbox_operator.scaling.tick import Tick
from pgoutbox_operator.scaling.wish import Wish, wish

if TYPE_CHECKING:
    from pgoutbox_operator.scaling.demand import Demand
    from pgoutbox_operator.scaling.policy import Policy
    from pgoutbox_operator.scaling.sample import Sample
    from pgoutbox_operator.scaling.state import State


def decide(state: State, sample: Sample, now: float, *, policy: Policy) -> tuple[State, Decision]:
    """How many replicas there shall be, and the state for the next tick.

    ``now`` in seconds by a clock of the caller's; should it jump back, the law starts to watch
    anew.
    """
    state, adopted = adopt(state, sample.fleet, now)
    limits = bounds(policy, sample.fleet)
    why = unknown(sample, policy)
    if why is not None or sample.outbox is None:
        state, decision = hold(state, why or Reason.METRICS_UNAVAILABLE, limits, policy)
        return state, replace(decision, adopted=adopted)
    tick = Tick(policy=policy, fleet=sample.fleet, outbox=sample.outbox, now=now)
    state = resume(state, sample.fleet, now, policy)
    state, rates = measure(state, tick.outbox, policy)
    state = idle.watch(pressure.watch(state, rates, tick), tick)
    state = knee.watch(state, rates, tick)
    needed = demand(state, rates, tick)
    state, wanted = wish(state, rates, needed, tick, room=limits.room)
    state, decision = _bounded(state, wanted, limits, tick)
    numbers = _numbers(state, rates, needed, limits, tick)
    decided = replace(_unless_paused(decision, policy), adopted=adopted, numbers=numbers)
    if decided.replicas < decided.previous:
        state = replace(state, down_at=now)
    return replace(state, wanted=decided.replicas), decided


def _bounded(state: State, wanted: Wish, limits: Bounds, tick: Tick) -> tuple[State, Decision]:
    lowest = 0 if wanted.reason is Reason.IDLE else max(1, limits.lowest)
    lowest = max(lowest, limits.lowest)
    desired = min(max(wanted.replicas, lowest), limits.highest)
    limited_by = limits.by if wanted.replicas > limits.highest else wanted.limited_by
    state = remember(state, desired, tick)
    reason = wanted.reason if desired == wanted.replicas else Reason.BOUNDS
    decision = Decision(
        replicas=tick.current, previous=tick.current, reason=reason, limited_by=limited_by
    )
    if tick.current > limits.highest:
        # These must not be, however short they have been too many.
        return state, replace(decision, replicas=limits.highest, reason=Reason.BOUNDS)
    if desired > tick.current:
        return state, _up(decision, desired, wanted, limits, tick)
    if desired < tick.current:
        return state, _down(decision, desired, wanted, state, tick)
    return state, decision


def _up(decision: Decision, desired: int, wanted: Wish, limits: Bounds, tick: Tick) -> Decision:
    lowest = max(limits.lowest, step_up(desired, tick, urgent=wanted.urgent))
    target = max(tick.current, min(lowest, limits.room))
    if target == desired:
        return replace(decision, replicas=target)
    limit = Limit.CONNECTION_BUDGET if target == limits.room else Limit.RATE_LIMIT
    return replace(decision, replicas=target, limited_by=decision.limited_by or limit)


def _down(decision: Decision, desired: int, wanted: Wish, state: State, tick: Tick) -> Decision:
    if tick.now - state.since < tick.policy.window:
        return replace(decision, reason=Reason.STARTING)
    enough = desired if wanted.at_once else min(tick.current, needed_lately(state))
    target = step_down(state, enough, tick)
    if target == tick.current:
        # A limit by the destinations is worth more to know than that its step has to wait.
        told = wanted.reason if wanted.at_once else Reason.STABILIZING
        return replace(decision, reason=told)
    return replace(decision, replicas=target)


def _unless_paused(decision: Decision, policy: Policy) -> Decision:
    up = decision.replicas > decision.previous and policy.paused in ("ScaleOut", "All")
    down = decision.replicas < decision.previous and policy.paused in ("ScaleIn", "All")
    if not up and not down:
        return decision
    return replace(decision, replicas=decision.previous, reason=Reason.PAUSED)


def _numbers(
    state: State, rates: Rates, needed: Demand | None, limits: Bounds, tick: Tick
) -> Numbers:
    return Numbers(
        ready=tick.outbox.ready,
        oldest_ready_age=tick.outbox.oldest_ready_age,
        arrivals=state.arrivals or 0.0,
        finished=rates.finished,
        rate_per_replica=state.rate,
        utilization=rates.utilization,
        failing=rates.failing,
        needed_up=needed.up if needed is not None else tick.current,
        needed_down=needed.down if needed is not None else tick.current,
        allowed=limits.highest,
    )
