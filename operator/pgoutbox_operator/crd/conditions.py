"""What ``status.conditions`` may say. Closed sets: people and alerts match on these words."""

from __future__ import annotations

from enum import StrEnum


class ConditionType(StrEnum):
    """All of them are there from the first visit on."""

    READY = "Ready"
    """The sum of the others: this scaler does what its spec says."""
    METRICS_AVAILABLE = "MetricsAvailable"
    """The outbox is known. While it is not, the replicas stay as they are."""
    SCALING_ACTIVE = "ScalingActive"
    """Replicas are written, where others are needed."""
    SCALING_LIMITED = "ScalingLimited"
    """Something keeps the replicas below what the backlog needs."""
    PAUSED = "Paused"
    """``spec.paused`` forbids some direction."""
    PERMITTED = "Permitted"
    """The cluster allows the operator all that it asked for."""


class ConditionReason(StrEnum):
    """Why a condition has its status."""

    PENDING = "Pending"
    """Unknown: not looked at yet."""
    RECONCILED = "Reconciled"
    """Ready."""
    INVALID_SPEC = "InvalidSpec"
    """Not ready: a spec that this operator cannot read, as of a newer one's definition."""
    TARGET_NOT_FOUND = "TargetNotFound"
    """Not ready: there is no such Deployment."""
    TARGET_CONFLICT = "TargetConflict"
    """Not ready: something else scales the same Deployment."""
    CLUSTER_ERROR = "ClusterError"
    """Not ready: the API server refused a request, or did not answer."""
    INTERNAL_ERROR = "InternalError"
    """Not ready: a bug, of which the operator's log tells more."""
    METRICS_UNAVAILABLE = "MetricsUnavailable"
    """Not ready, or not active: the outbox is not known."""

    SAMPLED = "Sampled"
    """The outbox is known."""
    DATABASE_UNREACHABLE = "DatabaseUnreachable"
    """It is not: no connection, or it broke."""
    DATABASE_REFUSED = "DatabaseRefused"
    """It is not: the database answers, but not this question."""
    DATABASE_INSECURE = "DatabaseInsecure"
    """It is not: the DSN trusts whichever server answers."""
    SECRET_NOT_FOUND = "SecretNotFound"  # noqa: S105 - a word, not a secret
    """It is not: no such Secret, key or file, or none that holds a DSN."""

    ACTIVE = "Active"
    """Scaling."""
    RECOMMEND_MODE = "RecommendMode"
    """Not active: ``spec.mode`` asks for advice only."""

    NOT_LIMITED = "NotLimited"
    MAX_REPLICAS = "MaxReplicas"
    CONNECTION_BUDGET = "ConnectionBudget"
    ORDERING_KEYS = "OrderingKeys"
    DOWNSTREAM_LIMITED = "DownstreamLimited"
    DATABASE_BOUND = "DatabaseBound"
    RATE_LIMIT = "RateLimit"

    NOT_PAUSED = "NotPaused"
    SCALE_IN = "ScaleIn"
    """Paused: no replicas are taken away."""
    SCALE_OUT = "ScaleOut"
    """Paused: none are added."""
    ALL = "All"
    """Paused, or not active: nothing changes."""

    PERMITTED = "Permitted"
    FORBIDDEN = "Forbidden"
    """The cluster forbids something that the operator needs; the message names it."""


class EventReason(StrEnum):
    """Of the Events that the operator posts."""

    SCALED_UP = "ScaledUp"
    SCALED_DOWN = "ScaledDown"
    EXTERNAL_SCALE = "ExternalScale"
    """Somebody else changed the replicas; the scaler goes on from there."""
    TARGET_CONFLICT = "TargetConflict"
    DEFINITION_OUTDATED = "DefinitionOutdated"
    """The cluster's definition of the resource is older than the operator."""
