"""Specs that a definition takes and specs that it refuses, for cel-python and for an API server."""

from __future__ import annotations

import copy
from typing import Any, NamedTuple

from pgoutbox_operator.crd import rules

Spec = dict[str, Any]
LEAST: Spec = {
    "scaleTargetRef": {"name": "workers"},
    "database": {"secretKeyRef": {"name": "outbox-dsn"}},
    "maxReplicas": 10,
}


class Refused(NamedTuple):
    """A spec, and a part of what is said about it."""

    spec: Spec
    said: str
    of_schema: str = ""
    """Instead of a rule's message: the field that the schema refuses."""


def spec(**changes: Any) -> Spec:
    """`LEAST` with other values; None takes one away."""
    changed = copy.deepcopy(LEAST) | changes
    return {name: value for name, value in changed.items() if value is not None}


ACCEPTED: dict[str, Spec] = {
    "the least": LEAST,
    "a connection by name": spec(database={"connectionName": "orders", "schema": "outbox"}),
    "equal bounds": spec(minReplicas=10),
    "zero": spec(minReplicas=0, idleSeconds=60, activationReplicas=10),
    "destinations": spec(destinations=["orders", "audit_log"]),
    "advice only": spec(mode="Recommend", paused="ScaleIn"),
    "a part of a group": spec(utilization={"targetPercent": 80}, scaleUp={"maxPods": 8}),
    "a hysteresis just below": spec(utilization={"targetPercent": 50, "hysteresisPercent": 49}),
    "a whole rate": spec(seedRatePerReplica="50"),
    "a small rate": spec(seedRatePerReplica="0.25"),
    "a budget for one": spec(connectionBudget={"total": 10, "reserved": 7, "perReplica": 3}),
    "a budget without more": spec(connectionBudget={"total": 100}),
    "a fallback": spec(fallback={"behavior": "AtLeast", "replicas": 10, "afterSeconds": 60}),
    "a fallback that holds": spec(fallback={"behavior": "Hold"}),
    "no pressure": spec(backpressure={"mode": "Ignore"}),
}

REFUSED: dict[str, Refused] = {
    "min above max": Refused(spec(minReplicas=11), rules.MIN_UP_TO_MAX.message),
    "fallback above max": Refused(
        spec(fallback={"behavior": "Static", "replicas": 11}), rules.FALLBACK_UP_TO_MAX.message
    ),
    "activation above max": Refused(
        spec(activationReplicas=11), rules.ACTIVATION_UP_TO_MAX.message
    ),
    "two databases": Refused(
        spec(database={"secretKeyRef": {"name": "a"}, "connectionName": "b"}),
        rules.ONE_DATABASE.message,
    ),
    "no database": Refused(spec(database={"schema": "public"}), rules.ONE_DATABASE.message),
    "hysteresis at target": Refused(
        spec(utilization={"targetPercent": 50, "hysteresisPercent": 50}),
        rules.HYSTERESIS_BELOW_TARGET.message,
    ),
    "target below the default hysteresis": Refused(
        spec(utilization={"targetPercent": 15}), rules.HYSTERESIS_BELOW_TARGET.message
    ),
    "everything reserved": Refused(
        spec(connectionBudget={"total": 10, "reserved": 10}), rules.RESERVED_BELOW_TOTAL.message
    ),
    "no room for one": Refused(
        spec(connectionBudget={"total": 10, "reserved": 8, "perReplica": 3}),
        rules.ONE_REPLICA_FITS.message,
    ),
    "a fallback to nothing": Refused(
        spec(fallback={"behavior": "Static"}), rules.FALLBACK_HAS_REPLICAS.message
    ),
    "no target": Refused(spec(scaleTargetRef=None), "", "scaleTargetRef"),
    "no maximum": Refused(spec(maxReplicas=None), "", "maxReplicas"),
    "a maximum of none": Refused(spec(maxReplicas=0), "", "maxReplicas"),
    "an empty fleet on failure": Refused(
        spec(fallback={"behavior": "Static", "replicas": 0}), "", "fallback.replicas"
    ),
    "another kind": Refused(
        spec(scaleTargetRef={"name": "a", "kind": "StatefulSet"}), "", "scaleTargetRef.kind"
    ),
    "a path for a name": Refused(
        spec(database={"connectionName": "../etc"}), "", "database.connectionName"
    ),
    "a schema that needs quotes": Refused(
        spec(database={"connectionName": "a", "schema": 'x"; --'}), "", "database.schema"
    ),
    "a destination twice": Refused(spec(destinations=["a", "a"]), "", "destinations"),
    "a destination with a dash": Refused(spec(destinations=["a-b"]), "", "destinations[0]"),
    "a rate of nothing": Refused(spec(seedRatePerReplica="0"), "", "seedRatePerReplica"),
    "a rate with a unit": Refused(spec(seedRatePerReplica="50m"), "", "seedRatePerReplica"),
    "an unknown mode": Refused(spec(mode="DryRun"), "", "mode"),
    "a tick of a second": Refused(spec(scaleUp={"periodSeconds": 1}), "", "scaleUp.periodSeconds"),
}
