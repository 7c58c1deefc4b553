"""The CEL rules of the definition: what a schema alone cannot say."""

from __future__ import annotations

from typing import NamedTuple


class Rule(NamedTuple):
    """One of them, and what people read when it is broken."""

    rule: str
    message: str

    def as_schema(self) -> dict[str, str]:
        """An item of ``x-kubernetes-validations``."""
        return {"rule": self.rule, "message": self.message}


MIN_UP_TO_MAX = Rule(
    "self.minReplicas <= self.maxReplicas",
    "minReplicas must be at most maxReplicas",
)
FALLBACK_UP_TO_MAX = Rule(
    "!has(self.fallback.replicas) || self.fallback.replicas <= self.maxReplicas",
    "fallback.replicas must be at most maxReplicas",
)
ACTIVATION_UP_TO_MAX = Rule(
    "!has(self.activationReplicas) || self.activationReplicas <= self.maxReplicas",
    "activationReplicas must be at most maxReplicas",
)
TARGET_STAYS = Rule(
    "self == oldSelf",
    "scaleTargetRef cannot be changed: create another OutboxScaler",
)
ONE_DATABASE = Rule(
    "has(self.secretKeyRef) != has(self.connectionName)",
    "exactly one of secretKeyRef and connectionName must be given",
)
HYSTERESIS_BELOW_TARGET = Rule(
    "self.hysteresisPercent < self.targetPercent",
    "hysteresisPercent must be less than targetPercent",
)
RESERVED_BELOW_TOTAL = Rule(
    "self.reserved < self.total",
    "reserved must be less than total",
)
ONE_REPLICA_FITS = Rule(
    "self.perReplica + self.reserved <= self.total",
    "what is left of total after reserved must be enough for one replica",
)
FALLBACK_HAS_REPLICAS = Rule(
    "self.behavior == 'Hold' || has(self.replicas)",
    "a behavior other than Hold needs replicas",
)

RULES = (
    MIN_UP_TO_MAX,
    FALLBACK_UP_TO_MAX,
    ACTIVATION_UP_TO_MAX,
    TARGET_STAYS,
    ONE_DATABASE,
    HYSTERESIS_BELOW_TARGET,
    RESERVED_BELOW_TOTAL,
    ONE_REPLICA_FITS,
    FALLBACK_HAS_REPLICAS,
)
