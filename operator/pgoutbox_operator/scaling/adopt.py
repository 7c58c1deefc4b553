"""Where to go on from: after a start, a jump of the clock, a gap, or somebody else's change."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from pgoutbox_operator.scaling.state import Knee, Recommendation

if TYPE_CHECKING:
    from pgoutbox_operator.scaling.policy import Policy
    from pgoutbox_operator.scaling.sample import Fleet
    from pgoutbox_operator.scaling.state import State


def adopt(state: State, fleet: Fleet, now: float) -> tuple[State, bool]:
    """The state as of ``now``, and whether somebody else has changed the replicas."""
    begun = _begin(state, fleet, now)
    changed = begun.wanted is not None and begun.wanted != fleet.replicas
    if changed:
        # They had a reason: it holds as if it had been the law's own.
        told = Recommendation(at=now, replicas=fleet.replicas)
        begun = replace(begun, recommendations=(*begun.recommendations, told), idle_since=None)
    return replace(begun, at=now, wanted=fleet.replicas), changed


def resume(state: State, fleet: Fleet, now: float, policy: Policy) -> State:
    """The outbox is known at ``now``. What nobody saw has not been enough for a while."""
    if now - state.known_at > policy.stale:
        told = Recommendation(at=now, replicas=fleet.replicas)
        knee = replace(state.knee, saturated_since=now, mean=0.0, count=0)
        state = replace(state, since=now, recommendations=(told,), knee=knee)
    return replace(state, known_at=now)


def _begin(state: State, fleet: Fleet, now: float) -> State:
    if state.at is None or now < state.at:
        # Instants of another clock mean nothing; rates do.
        return replace(
            state,
            since=now,
            known_at=now,
            stepped_at=now,
            limited_at=now,
            recommendations=(Recommendation(at=now, replicas=fleet.replicas),),
            down_at=None,
            idle_since=None,
            knee=Knee(),
        )
    return state
