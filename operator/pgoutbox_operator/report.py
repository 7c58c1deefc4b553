"""From a visit to the status, and whether it is worth a write. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pgoutbox_operator import clock
from pgoutbox_operator.conditions import changed, conditions
from pgoutbox_operator.crd import Observed, ScalerStatus

if TYPE_CHECKING:
    from pgoutbox_operator.visit import Visit

QUIET_SECONDS = 60.0
"""What is no news is written so often. That is also how a deletion is noticed that nobody told."""
DIGITS = 2


def status_of(visit: Visit, before: ScalerStatus, now: str) -> ScalerStatus:
    """What there is to say. What this visit could not find out stays as it was."""
    decision = visit.decision
    values: dict[str, Any] = {
        "observed_generation": visit.generation,
        "conditions": conditions(visit, before.conditions, now),
    }
    if visit.target is not None:
        values["current_replicas"] = visit.replicas
        values["ready_replicas"] = visit.target.ready
    if decision is not None:
        values |= {
            "desired_replicas": decision.replicas,
            "decision": decision.reason.value,
            "observed": _observed(visit, before.observed or Observed()),
        }
        if visit.written:
            values |= {"last_scale_time": now, "last_scale_reason": decision.reason.value}
    return before.model_copy(update=values)


def is_due(before: ScalerStatus, after: ScalerStatus, age: float | None) -> bool:
    """``age``: seconds since the last write; None where this process has not written yet."""
    if age is None or changed(before.conditions, after.conditions):
        return True
    told = ("observed_generation", "current_replicas", "desired_replicas", "ready_replicas")
    if any(getattr(before, name) != getattr(after, name) for name in told):
        return True
    return age >= QUIET_SECONDS


def as_patch(status: ScalerStatus) -> dict[str, Any]:
    """For a merge. What is not known any more is taken away by its null."""
    patch = status.model_dump(by_alias=True, mode="json")
    for each in patch["conditions"]:
        if each["observedGeneration"] is None:
            del each["observedGeneration"]
    return patch


def pruned(sent: Any, stored: Any, path: str = "status") -> list[str]:  # noqa: ANN401 - JSON
    """What the cluster's definition does not know, and therefore dropped."""
    if not isinstance(sent, dict) or not isinstance(stored, dict):
        return []
    lost = []
    for name, value in sent.items():
        if value is not None and name not in stored:
            lost.append(f"{path}.{name}")
        else:
            lost += pruned(value, stored.get(name), f"{path}.{name}")
    return lost


def rounded(value: float) -> float:
    """To two significant digits: what changes with every tick is no news."""
    return float(f"{value:.{DIGITS}g}")


def _observed(visit: Visit, before: Observed) -> Observed:
    decision, outbox = visit.decision, visit.outbox
    limit = None if decision is None or decision.limited_by is None else decision.limited_by.value
    if decision is None or outbox is None:
        return before.model_copy(update={"limited_by": limit})
    numbers = decision.numbers
    rate = numbers.rate_per_replica
    return Observed(
        pending_messages=int(rounded(outbox.ready)),
        oldest_pending_age_seconds=int(rounded(outbox.oldest_ready_age)),
        scheduled_messages=int(rounded(outbox.scheduled)),
        dead_messages=None if visit.dead is None else int(rounded(visit.dead)),
        arrival_rate=_decimal(numbers.arrivals),
        rate_per_replica=None if rate is None else _decimal(rate),
        failing_percent=round(100 * numbers.failing),
        limited_by=limit,
        sampled_at=None if visit.sampled_at is None else clock.at(visit.sampled_at),
    )


def _decimal(value: float) -> str:
    number = rounded(value)
    return f"{number:.0f}" if number >= 1 and number == int(number) else f"{number:g}"
