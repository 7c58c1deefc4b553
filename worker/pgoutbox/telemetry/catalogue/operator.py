"""What the operator shows of its scalers. What tables hold it shows as the exporter does.

It is described here and nowhere else; this package knows nothing more of the operator.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pgoutbox.telemetry.catalogue.metric import Metric

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pgoutbox.telemetry.catalogue.metric import Kind, Values

OBJECT = ("namespace", "name")


def _of_a_scaler(
    name: str,
    what: str,
    labels: Values = (),
    *,
    kind: Kind = "gauge",
    values: Mapping[str, Values] | None = None,
    more: str = "",
) -> Metric:
    return Metric(
        name,
        kind,
        what,
        (*OBJECT, *labels),
        components=("operator",),
        values=values or {},
        more=more,
    )


CURRENT_REPLICAS = _of_a_scaler(
    "outbox_scaler_current_replicas", "Replicas that the target asks for"
)
DESIRED_REPLICAS = _of_a_scaler(
    "outbox_scaler_desired_replicas",
    "Replicas that there shall be",
    more="As many as the target has, unless the last write failed or `mode` is `Recommend`",
)
MAX_REPLICAS = _of_a_scaler("outbox_scaler_max_replicas", "Most replicas that the spec allows")
LIMITED = _of_a_scaler(
    "outbox_scaler_limited",
    "1 for what keeps the replicas below what the backlog needs",
    ("reason",),
    values={
        "reason": (
            "MaxReplicas",
            "ConnectionBudget",
            "OrderingKeys",
            "DownstreamLimited",
            "DatabaseBound",
            "RateLimit",
        )
    },
    more="See [scaling.md](scaling.md)",
)
OLDEST_READY_AGE = _of_a_scaler(
    "outbox_scaler_oldest_ready_age_seconds",
    "Since when the oldest message is due that the target can claim",
    more="Of the scaler's own destinations; 0 when none is",
)
RATE_PER_REPLICA = _of_a_scaler(
    "outbox_scaler_rate_per_replica",
    "Messages a second of one replica that is fully used",
    more="As measured; absent until something is known of it",
)
SCALE_ACTIONS = _of_a_scaler(
    "outbox_scaler_scale_actions_total",
    "Changes of the replicas",
    ("direction",),
    kind="counter",
    values={"direction": ("up", "down")},
)
CONDITION = _of_a_scaler(
    "outbox_scaler_condition",
    "1 for the status that a condition of the scaler has",
    ("type", "status"),
    values={
        "type": (
            "Ready",
            "MetricsAvailable",
            "ScalingActive",
            "ScalingLimited",
            "Paused",
            "Permitted",
        ),
        "status": ("True", "False", "Unknown"),
    },
    more="As in the object's `status.conditions`, and also where these cannot be written",
)
LAST_RECONCILE = _of_a_scaler(
    "outbox_scaler_last_reconcile_timestamp_seconds",
    "When the scaler was last looked after, its status included",
)
PERMISSION_ERRORS = Metric(
    "outbox_operator_permission_errors_total",
    "counter",
    "Requests that the cluster forbade",
    ("verb", "resource"),
    components=("operator",),
    more="In the words of a Role. All rights that the operator needs exist from the start",
)

OPERATOR = (
    CURRENT_REPLICAS,
    DESIRED_REPLICAS,
    MAX_REPLICAS,
    LIMITED,
    OLDEST_READY_AGE,
    RATE_PER_REPLICA,
    SCALE_ACTIONS,
    CONDITION,
    LAST_RECONCILE,
    PERMISSION_ERRORS,
)
