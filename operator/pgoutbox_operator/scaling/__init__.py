"""The control law: how many replicas an outbox needs. Pure: no I/O and no clock.

`decide` is called once a tick by the operator and, unchanged, by the simulator.
"""

from pgoutbox_operator.scaling.decide import decide
from pgoutbox_operator.scaling.decision import Decision, Limit, Numbers, Reason
from pgoutbox_operator.scaling.opened import open_destinations
from pgoutbox_operator.scaling.policy import STALE_SECONDS, Budget, Fallback, Policy
from pgoutbox_operator.scaling.sample import Fleet, Outbox, Sample, Worker
from pgoutbox_operator.scaling.state import State

__all__ = [
    "STALE_SECONDS",
    "Budget",
    "Decision",
    "Fallback",
    "Fleet",
    "Limit",
    "Numbers",
    "Outbox",
    "Policy",
    "Reason",
    "Sample",
    "State",
    "Worker",
    "decide",
    "open_destinations",
]
