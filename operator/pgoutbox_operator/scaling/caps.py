"""The most replicas that make sense: allowed, paid for in connections, and of any use."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from pgoutbox_operator.scaling.decision import Limit

if TYPE_CHECKING:
    from pgoutbox_operator.scaling.policy import Policy
    from pgoutbox_operator.scaling.sample import Fleet, Outbox


class Bounds(NamedTuple):
    """``lowest <= replicas <= highest``, and what sets the upper one."""

    lowest: int
    highest: int
    by: Limit
    room: int
    """As `highest`, less the connections of pods that are still terminating: only growth waits
    for these."""


def bounds(policy: Policy, fleet: Fleet) -> Bounds:
    """At least one may always run: a budget too small for one is the settings' problem."""
    highest, by = policy.max_replicas, Limit.MAX_REPLICAS
    room = highest
    if policy.budget is not None:
        budget = policy.budget
        paid_for = (budget.total - budget.reserved) // budget.per_replica - budget.surge
        room = min(highest, paid_for - fleet.terminating)
        if paid_for < highest:
            highest, by = paid_for, Limit.CONNECTION_BUDGET
    highest = max(1, highest)
    return Bounds(min(policy.min_replicas, highest), highest, by, max(1, room))


def useful(outbox: Outbox) -> int | None:
    """To how many it makes sense to grow; None: no such limit.

    Each lane keeps one slot busy at most, whatever waits in it.
    """
    if outbox.lanes is None:
        return None
    slots = max((worker.slots for worker in outbox.workers if worker.running), default=0)
    return max(1, -(-outbox.lanes // slots)) if slots else None
