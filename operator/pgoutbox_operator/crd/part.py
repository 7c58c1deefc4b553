"""What the models are made of. Every string, number and list has bounds: CEL's cost needs them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from pydantic import BaseModel, ConfigDict, Field, JsonValue
from pydantic.alias_generators import to_camel

if TYPE_CHECKING:
    from pgoutbox_operator.crd.rules import Rule

MOST_REPLICAS = 10_000
MOST_CONNECTIONS = 1_000_000
DAY = 86_400
LABEL = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"
SUBDOMAIN = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$"


class Part(BaseModel):
    """One object of the resource. Names are camelCase outside and snake_case here."""

    model_config = ConfigDict(
        frozen=True, extra="ignore", alias_generator=to_camel, populate_by_name=True
    )


def ruled(*rules: Rule) -> ConfigDict:
    """The configuration of a part that has CEL rules."""
    validations: list[JsonValue] = [{**rule.as_schema()} for rule in rules]
    return ConfigDict(json_schema_extra={"x-kubernetes-validations": validations})


Replicas = Annotated[int, Field(ge=1, le=MOST_REPLICAS)]
ReplicasOrNone = Annotated[int, Field(ge=0, le=MOST_REPLICAS)]
Percent = Annotated[int, Field(ge=1, le=100)]
Seconds = Annotated[int, Field(ge=1, le=DAY)]
Count = Annotated[int, Field(ge=0)]
