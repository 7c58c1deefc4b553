"""How many replicas arrivals and backlog need. Age eats the time in which to drain."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pgoutbox_operator.scaling.state import State
    from pgoutbox_operator.scaling.throughput import Rates
    from pgoutbox_operator.scaling.tick import Tick

QUEUEING = 0.5
"""Share of the objective that a message may spend waiting: by Little's law so many wait anyway,
and only what is beyond them is a backlog."""
DEADLINE = 0.8
"""Share of the objective in which to be done with a backlog."""
LEAST = 0.5
"""Share of the objective that is left for it, however old the oldest is: less time would ask for
more replicas, which would come too late all the same."""
NEARLY_LATE = 1 / 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Demand:
    """Too few below ``up``, too many above ``down``; between them nothing changes."""

    up: int
    down: int
    by_arrivals: int
    urgent: bool
    """Messages are about to be late, or will be before the fleet has got through them."""


def demand(state: State, rates: Rates, tick: Tick) -> Demand | None:
    """None while nothing is known of what a replica can do."""
    if not state.rate:
        return None
    policy, outbox = tick.policy, tick.outbox
    arrivals, objective = state.arrivals or 0.0, policy.objective
    slack = max(
        LEAST * objective, DEADLINE * objective - outbox.oldest_ready_age - 0.5 * tick.startup
    )
    # What will have piled up before the first of the new ones does anything.
    short = max(0.0, arrivals - rates.replicas * state.rate)
    waiting = outbox.ready + short * min(tick.startup, objective)
    excess = max(0.0, waiting - arrivals * QUEUEING * objective) if outbox.ready else 0.0
    draining = replicas_for(arrivals + excess / slack, state.rate)
    by_arrivals = replicas_for(arrivals / policy.utilization, state.rate)
    loose = replicas_for(arrivals / (policy.utilization - policy.hysteresis), state.rate)
    return Demand(
        up=max(by_arrivals, draining),
        down=max(loose, draining),
        by_arrivals=by_arrivals,
        urgent=outbox.oldest_ready_age > NEARLY_LATE * objective
        or outbox.ready > slack * state.rate * max(1, rates.replicas),
    )


def replicas_for(rate: float, per_replica: float) -> int:
    """As many as get through ``rate`` messages a second."""
    return math.ceil(rate / per_replica - 1e-9)
