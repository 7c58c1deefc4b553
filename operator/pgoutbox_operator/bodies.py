"""Objects as the API server gives them, read by the model."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydantic import ValidationError

from pgoutbox_operator.crd import ScalerSpec, ScalerStatus

if TYPE_CHECKING:
    from pgoutbox_operator.cluster import Object


def spec_of(body: Object) -> ScalerSpec | None:
    """None where this operator cannot read it."""
    try:
        return ScalerSpec.model_validate(body.get("spec"))
    except ValidationError:
        return None


def status_of(body: Object) -> ScalerStatus:
    """Empty where there is none, or none that can be read."""
    try:
        return ScalerStatus.model_validate(body.get("status") or {})
    except ValidationError:
        return ScalerStatus()


def why_invalid(body: Object) -> str:
    """What is wrong with the spec, in words."""
    try:
        ScalerSpec.model_validate(body.get("spec"))
    except ValidationError as error:
        first = error.errors(include_input=False, include_url=False)[0]
        field = ".".join(str(part) for part in first["loc"])
        return f"this operator cannot read spec.{field}: {first['msg']}"
    return "this operator cannot read the spec"
