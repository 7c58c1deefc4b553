"""Up at once but not without measure, down only what has not been needed for a while."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from pgoutbox_operator.scaling.state import Recommendation

if TYPE_CHECKING:
    from pgoutbox_operator.scaling.state import State
    from pgoutbox_operator.scaling.tick import Tick

URGENT_FACTOR, URGENT_PODS = 1.5, 4
"""How much further a step goes where messages are about to be late."""


def remember(state: State, desired: int, tick: Tick) -> State:
    """So many would be enough now."""
    kept = tuple(r for r in state.recommendations if tick.now - r.at <= tick.policy.window)
    told = Recommendation(at=tick.now, replicas=desired)
    return replace(state, recommendations=(*kept, told))


def step_up(desired: int, tick: Tick, *, urgent: bool) -> int:
    """Towards ``desired``, so far as one tick may go."""
    factor, pods = tick.policy.up_factor, tick.policy.up_pods
    if urgent:
        factor, pods = factor * URGENT_FACTOR, pods * URGENT_PODS
    return min(desired, max(int(tick.current * factor), tick.current + pods))


def needed_lately(state: State) -> int:
    """The most that was recommended within the window."""
    return max(told.replicas for told in state.recommendations)


def step_down(state: State, desired: int, tick: Tick) -> int:
    """Towards ``desired``, one step a period."""
    policy, current = tick.policy, tick.current
    if state.down_at is not None and tick.now - state.down_at < policy.down_period:
        return current
    return max(desired, current - max(1, int(current * policy.down_share)))
