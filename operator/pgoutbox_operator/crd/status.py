"""``status``: what the scaler saw, did, and thinks."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from pgoutbox_operator.crd.part import Count, Part

Time = Annotated[str, Field(max_length=40, json_schema_extra={"format": "date-time"})]
Rate = Annotated[str, Field(max_length=20)]
Word = Annotated[str, Field(max_length=64)]


class Condition(Part):
    """As ``metav1.Condition``.

    The words are those of `ConditionType` and `ConditionReason`. The schema does not list them, so
    that a definition that is older than the operator takes its status all the same.
    """

    type: str = Field(pattern=r"^[A-Z][A-Za-z]*$", min_length=1, max_length=64)
    status: Literal["True", "False", "Unknown"]
    reason: str = Field(pattern=r"^[A-Z][A-Za-z]*$", min_length=1, max_length=64)
    message: str = Field(max_length=32_768)
    last_transition_time: Time = Field(description="When the status last became another one.")
    observed_generation: Count | None = None


class Observed(Part):
    """Numbers that the last decision was made from, with two significant digits."""

    pending_messages: Count | None = Field(
        default=None,
        description="Those that can be delivered now; of an open breaker's destination, none.",
    )
    oldest_pending_age_seconds: Count | None = Field(
        default=None, description="Since when the oldest of these is due."
    )
    scheduled_messages: Count | None = None
    dead_messages: Count | None = None
    arrival_rate: Rate | None = Field(
        default=None, description="Messages a second, as a decimal number."
    )
    rate_per_replica: Rate | None = Field(
        default=None, description="Messages a second of one replica that is fully used."
    )
    failing_percent: Count | None = Field(
        default=None, description="Share of attempts that failed."
    )
    limited_by: Word | None = None
    sampled_at: Time | None = None


class ScalerStatus(Part):
    """Written by the operator alone."""

    observed_generation: Count | None = None
    current_replicas: Count | None = Field(
        default=None, description="Those that the target asks for."
    )
    desired_replicas: Count | None = Field(default=None, description="Those that there shall be.")
    ready_replicas: Count | None = None
    last_scale_time: Time | None = None
    last_scale_reason: Word | None = None
    decision: Word | None = Field(
        default=None, description="Why there shall be so many, in one word."
    )
    observed: Observed | None = None
    conditions: Annotated[tuple[Condition, ...], Field(max_length=16)] = Field(
        default=(),
        json_schema_extra={
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["type"],
        },
    )
