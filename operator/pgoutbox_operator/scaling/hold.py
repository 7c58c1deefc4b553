"""When nothing is known, nothing changes; unless the policy says what to do after a while."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from pgoutbox_operator.scaling.decision import Decision, Numbers, Reason

if TYPE_CHECKING:
    from pgoutbox_operator.scaling.caps import Bounds
    from pgoutbox_operator.scaling.policy import Policy
    from pgoutbox_operator.scaling.sample import Sample
    from pgoutbox_operator.scaling.state import State


def unknown(sample: Sample, policy: Policy) -> Reason | None:
    """Why the outbox is not known; None where it is."""
    if sample.outbox is None:
        return Reason.METRICS_UNAVAILABLE
    return Reason.METRICS_STALE if sample.age > policy.stale else None


def hold(state: State, reason: Reason, bounds: Bounds, policy: Policy) -> tuple[State, Decision]:
    """As they are, or as the fallback says. Never to zero."""
    current, now = state.wanted or 0, state.at or 0.0
    desired, fallback = current, policy.fallback
    unknown_for = now - state.known_at
    if fallback.behavior != "Hold" and unknown_for >= fallback.after and policy.paused == "None":
        floor = max(1, bounds.lowest, min(fallback.replicas, bounds.highest))
        desired = floor if fallback.behavior == "Static" else max(current, floor)
        reason = Reason.FALLBACK
    numbers = Numbers(
        arrivals=state.arrivals or 0.0, rate_per_replica=state.rate, allowed=bounds.highest
    )
    held = replace(state, wanted=desired, idle_since=None)
    return held, Decision(replicas=desired, previous=current, reason=reason, numbers=numbers)
