"""The custom resource: one Python model, from which the definition's YAML is generated."""

from pgoutbox_operator.crd.conditions import ConditionReason, ConditionType
from pgoutbox_operator.crd.names import API_VERSION, GROUP, KIND, PLURAL, VERSION
from pgoutbox_operator.crd.spec import ScalerSpec
from pgoutbox_operator.crd.status import Condition, Observed, ScalerStatus

__all__ = [
    "API_VERSION",
    "GROUP",
    "KIND",
    "PLURAL",
    "VERSION",
    "Condition",
    "ConditionReason",
    "ConditionType",
    "Observed",
    "ScalerSpec",
    "ScalerStatus",
]
