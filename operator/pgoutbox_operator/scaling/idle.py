"""To zero and back."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pgoutbox_operator.scaling.state import State
    from pgoutbox_operator.scaling.tick import Tick


def watch(state: State, tick: Tick) -> State:
    """Since when there has been nothing to do, nor will be before a pod could start anew."""
    outbox = tick.outbox
    soon = outbox.scheduled and (
        # Where it is not known, it may be at any moment.
        outbox.next_due_in is None or outbox.next_due_in <= 2 * tick.startup
    )
    if outbox.has_due or soon:
        return replace(state, idle_since=None)
    return state if state.idle_since is not None else replace(state, idle_since=tick.now)


def is_idle(state: State, tick: Tick) -> bool:
    """For long enough, where the policy allows for none at all."""
    if tick.policy.min_replicas or state.idle_since is None:
        return False
    return tick.now - state.idle_since >= tick.policy.idle


def has_work(tick: Tick) -> bool:
    """Whether somebody is needed, now or by the time that a pod has started."""
    due = tick.outbox.next_due_in
    return tick.outbox.has_due or (due is not None and due <= tick.startup)
