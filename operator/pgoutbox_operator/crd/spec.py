"""``spec``: what a user asks for. Defaults are those of the definition; the API server fills in."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from pgoutbox_operator.crd import rules
from pgoutbox_operator.crd.part import (
    LABEL,
    MOST_CONNECTIONS,
    SUBDOMAIN,
    Part,
    Percent,
    Replicas,
    ReplicasOrNone,
    Seconds,
    ruled,
)

DestinationName = Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]*$", min_length=1, max_length=40)]


class ScaleTargetRef(Part):
    """The workload whose replicas are scaled, in the namespace of this object."""

    model_config = ruled(rules.TARGET_STAYS)

    api_version: Literal["apps/v1"] = "apps/v1"
    kind: Literal["Deployment"] = "Deployment"
    name: str = Field(
        description="Name of the Deployment.", pattern=SUBDOMAIN, min_length=1, max_length=253
    )


class SecretKeyRef(Part):
    """A key of a Secret in the namespace of this object."""

    name: str = Field(
        description="Name of the Secret.", pattern=SUBDOMAIN, min_length=1, max_length=253
    )
    key: str = Field(
        default="dsn",
        description="Key that holds the DSN: postgresql://... or key=value pairs.",
        pattern=r"^[-._a-zA-Z0-9]+$",
        min_length=1,
        max_length=253,
    )


class Database(Part):
    """Where the outbox is, by a role that may call outbox_stats and nothing else."""

    model_config = ruled(rules.ONE_DATABASE)

    secret_key_ref: SecretKeyRef | None = Field(
        default=None, description="The Secret that holds the DSN."
    )
    connection_name: str | None = Field(
        default=None,
        description="Name of a file with the DSN in the operator's folder of connections.",
        pattern=LABEL,
        min_length=1,
        max_length=63,
    )
    schema_name: str = Field(
        default="public",
        alias="schema",
        description="PostgreSQL schema that the outbox was migrated into.",
        pattern=r"^[A-Za-z_][A-Za-z0-9_]*$",
        min_length=1,
        max_length=63,
    )


class Objective(Part):
    """What the scaler aims at."""

    max_age_seconds: Seconds = Field(
        default=30, description="No message should become older than this."
    )


class Utilization(Part):
    """How busy the replicas shall be with what arrives."""

    model_config = ruled(rules.HYSTERESIS_BELOW_TARGET)

    target_percent: Percent = Field(default=90, description="Above it, replicas are added.")
    hysteresis_percent: Annotated[int, Field(ge=0, le=100)] = Field(
        default=15, description="As many points lower before replicas are taken away."
    )


class ScaleUp(Part):
    """How far one tick may add replicas: the greater of both limits."""

    max_percent: Annotated[int, Field(ge=1, le=1000)] = Field(
        default=100, description="Of the present replicas."
    )
    max_pods: Replicas = Field(default=4, description="In replicas.")
    period_seconds: Annotated[int, Field(ge=5, le=300)] = Field(
        default=15, description="The tick: seconds between two decisions."
    )


class ScaleDown(Part):
    """How replicas are taken away."""

    stabilization_window_seconds: Annotated[int, Field(ge=0, le=3600)] = Field(
        default=120, description="A replica goes when it has not been needed for so long."
    )
    max_percent: Percent = Field(default=50, description="Of the present replicas, in one step.")
    period_seconds: Annotated[int, Field(ge=1, le=1800)] = Field(
        default=60, description="Seconds between two steps."
    )


class ConnectionBudget(Part):
    """How many database connections the replicas may take together."""

    model_config = ruled(rules.RESERVED_BELOW_TOTAL, rules.ONE_REPLICA_FITS)

    total: Annotated[int, Field(ge=1, le=MOST_CONNECTIONS)] = Field(
        description="Connections that the database allows."
    )
    reserved: Annotated[int, Field(ge=0, le=MOST_CONNECTIONS)] = Field(
        default=0, description="Of these, those that are meant for others."
    )
    per_replica: Annotated[int, Field(ge=1, le=1000)] = Field(
        default=3, description="Connections that one replica opens at most."
    )
    surge: ReplicasOrNone = Field(
        default=0, description="Replicas that a rollout adds for a while."
    )


class Backpressure(Part):
    """What happens when the destinations fail."""

    mode: Literal["MatchThroughput", "Hold", "Ignore"] = Field(
        default="MatchThroughput",
        description="MatchThroughput: as many replicas as what they still accept needs."
        " Hold: as many as there are. Ignore: as if they did not fail.",
    )
    failure_ratio_percent: Percent = Field(
        default=10, description="Share of failed attempts from which on they count as failing."
    )


class Fallback(Part):
    """What to do when nothing has been known of the outbox for a while. Never none at all."""

    model_config = ruled(rules.FALLBACK_HAS_REPLICAS)

    behavior: Literal["Hold", "AtLeast", "Static"] = Field(
        default="Hold",
        description="Hold: as many replicas as there are. AtLeast: no fewer than replicas."
        " Static: replicas.",
    )
    replicas: Replicas | None = Field(default=None, description="For AtLeast and Static.")
    after_seconds: Seconds = Field(default=300, description="For how long nothing has to be known.")


class ScalerSpec(Part):
    """What shall be scaled, by which outbox, and within which limits."""

    model_config = ruled(rules.MIN_UP_TO_MAX, rules.FALLBACK_UP_TO_MAX, rules.ACTIVATION_UP_TO_MAX)

    scale_target_ref: ScaleTargetRef
    database: Database
    destinations: Annotated[tuple[DestinationName, ...], Field(max_length=100)] = Field(
        default=(),
        description="Those that the target's workers serve. None named: all.",
        json_schema_extra={"x-kubernetes-list-type": "set"},
    )
    mode: Literal["Auto", "Recommend"] = Field(
        default="Auto",
        description="Recommend: say what would be done in the status, and do nothing.",
    )
    paused: Literal["None", "ScaleIn", "ScaleOut", "All"] = Field(
        default="None", description="A direction in which nothing is changed."
    )
    min_replicas: ReplicasOrNone = Field(
        default=1, description="0: none where there has been nothing to do for idleSeconds."
    )
    max_replicas: Replicas = Field(description="Never more than this.")
    activation_replicas: Replicas | None = Field(
        default=None,
        description="A start from zero brings no more than this. Absent: as many as needed.",
    )
    idle_seconds: Seconds = Field(
        default=300, description="To zero after so long with nothing to do, where minReplicas is 0."
    )
    objective: Objective = Objective()
    utilization: Utilization = Utilization()
    scale_up: ScaleUp = ScaleUp()
    scale_down: ScaleDown = ScaleDown()
    seed_rate_per_replica: str | None = Field(
        default=None,
        description="Messages a second of one replica, as a decimal number, until it is measured.",
        pattern=r"^([1-9][0-9]{0,6}(\.[0-9]{1,3})?|0\.[0-9]{0,2}[1-9])$",
        max_length=11,
    )
    expected_startup_seconds: Seconds = Field(
        default=20, description="From a pod's creation to its first message, until it is measured."
    )
    connection_budget: ConnectionBudget | None = None
    backpressure: Backpressure = Backpressure()
    fallback: Fallback = Fallback()
