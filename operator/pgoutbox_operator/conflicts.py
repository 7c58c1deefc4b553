"""Who else scales the same Deployment. Two that write in turn are worse than either."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pgoutbox_operator.cluster import Object


def of_autoscalers(found: Iterable[Object], deployment: str) -> str | None:
    """A HorizontalPodAutoscaler of the same target, in words. KEDA makes one too."""
    for each in found:
        target = each.get("spec", {}).get("scaleTargetRef") or {}
        if target.get("kind") == "Deployment" and target.get("name") == deployment:
            name = each["metadata"]["name"]
            return f"the HorizontalPodAutoscaler {name} scales the Deployment {deployment} too"
    return None


def of_scalers(ours: Object, others: Iterable[Object]) -> str | None:
    """An older OutboxScaler of the same target, in words: the oldest one goes on.

    One that only recommends is in nobody's way.
    """
    target = _target(ours)
    for each in others:
        if _target(each) == target and _acts(each) and _seniority(each) < _seniority(ours):
            name = each["metadata"]["name"]
            return f"the OutboxScaler {name}, which is older, scales the Deployment {target[1]} too"
    return None


def _target(body: Object) -> tuple[str, str]:
    spec = body.get("spec") or {}
    return body["metadata"]["namespace"], (spec.get("scaleTargetRef") or {}).get("name", "")


def _acts(body: Object) -> bool:
    return (body.get("spec") or {}).get("mode") != "Recommend"


def _seniority(body: Object) -> tuple[str, str]:
    of = body["metadata"]
    return of.get("creationTimestamp", ""), of["name"]
