"""When the destinations fail, more workers only fail more often.

The fleet is held at what they accept; once they accept again it grows as TCP starts, doubling its
step, so that what has just recovered is not run over.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from pgoutbox_operator.scaling.demand import replicas_for

if TYPE_CHECKING:
    from pgoutbox_operator.scaling.state import State
    from pgoutbox_operator.scaling.throughput import Rates
    from pgoutbox_operator.scaling.tick import Tick

ENOUGH_FAILURES = 5
"""In one tick: fewer may be anything."""
PATIENCE = 2
"""Ticks that the breakers have for one destination of several that is dead."""


def watch(state: State, rates: Rates, tick: Tick) -> State:
    """Whether they fail now. What was limited stays so until a step has led back to normal."""
    if tick.policy.backpressure == "Ignore":
        return replace(state, limited=False)
    if not _failing(rates, tick) or rates.failed * tick.policy.tick < ENOUGH_FAILURES:
        return state
    since = state.limited_at if state.limited else tick.now
    return replace(state, limited=True, limited_at=since, step=1, stepped_at=tick.now)


def matching(state: State, rates: Rates, tick: Tick) -> int:
    """What they accept needs so many; never more than there are."""
    quiet = rates.finished > 0 and not _failing(rates, tick)
    if tick.now - state.limited_at < PATIENCE * tick.policy.tick:
        # Breakers may be all that it takes.
        return tick.current
    if quiet or tick.policy.backpressure == "Hold" or not state.rate:
        return tick.current
    accepted = replicas_for(rates.finished / tick.policy.utilization, state.rate)
    return min(tick.current, accepted + 1)


def recover(state: State, rates: Rates, tick: Tick, needed: int) -> tuple[State, int]:
    """One step towards what is needed, once the last one has shown its effect.

    Where no step is needed the limit is over.
    """
    calm = tick.now - state.stepped_at
    shown = calm >= tick.startup + tick.policy.tick
    # A few failures that never end are how this destination is: then it takes longer to be sure.
    accepts = rates.failing < tick.policy.recovered or calm >= tick.policy.window
    # Nor can anybody show it while there is nothing to send.
    shown = shown and (
        rates.finished > 0 or (calm >= tick.policy.window and not tick.outbox.has_due)
    )
    if not (shown and accepts):
        return state, tick.current
    if needed <= tick.current:
        return replace(state, limited=False, step=1), tick.current
    following = min(state.step * 2, tick.policy.max_replicas)
    stepped = replace(state, step=following, stepped_at=tick.now)
    return stepped, min(needed, tick.current + state.step)


def _failing(rates: Rates, tick: Tick) -> bool:
    return rates.failing > tick.policy.failing
