"""From a visit to conditions. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from pgoutbox_operator.crd import Condition, ConditionReason, ConditionType
from pgoutbox_operator.scaling import Limit, Reason

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from pgoutbox_operator.visit import Visit

LONGEST_MESSAGE = 1024


class Verdict(NamedTuple):
    """What a condition shall say. ``status`` None: not known, and it stays what it was."""

    status: bool | None
    reason: ConditionReason
    message: str = ""


def _yes(reason: ConditionReason, message: str = "") -> Verdict:
    return Verdict(status=True, reason=reason, message=message)


def _no(reason: ConditionReason, message: str = "") -> Verdict:
    return Verdict(status=False, reason=reason, message=message)


NOT_LOOKED = Verdict(None, ConditionReason.PENDING, "not looked at yet")

LIMITS = {
    Limit.MAX_REPLICAS: "maxReplicas allows no more",
    Limit.CONNECTION_BUDGET: "connectionBudget allows no more",
    Limit.ORDERING_KEYS: "more replicas than lanes would have nothing to do",
    Limit.DOWNSTREAM_LIMITED: "the destinations fail, so more replicas would only fail more often",
    Limit.DATABASE_BOUND: "more replicas would get nothing more through: the database is the limit",
    Limit.RATE_LIMIT: "scaleUp or scaleDown allows no greater step",
}


def conditions(visit: Visit, before: Iterable[Condition], now: str) -> tuple[Condition, ...]:
    """All of them, each with the time of its last transition."""
    known = {each.type: each for each in before}
    verdicts = {
        ConditionType.READY: _ready(visit),
        ConditionType.METRICS_AVAILABLE: _metrics(visit),
        ConditionType.SCALING_ACTIVE: _active(visit),
        ConditionType.SCALING_LIMITED: _limited(visit),
        ConditionType.PAUSED: _paused(visit),
        ConditionType.PERMITTED: _permitted(visit),
    }
    return tuple(
        _condition(kind, verdict, known.get(kind), visit.generation, now)
        for kind, verdict in verdicts.items()
    )


def _condition(
    kind: ConditionType, verdict: Verdict, before: Condition | None, generation: int, now: str
) -> Condition:
    if verdict.status is None and before is not None:
        return before
    status = str(verdict.status) if verdict.status is not None else "Unknown"
    stays = before is not None and before.status == status
    return Condition.model_validate(
        {
            "type": kind.value,
            "status": status,
            "reason": verdict.reason.value,
            "message": verdict.message[:LONGEST_MESSAGE],
            "last_transition_time": before.last_transition_time if before and stays else now,
            "observed_generation": generation,
        }
    )


def _ready(visit: Visit) -> Verdict:
    if visit.blocked is not None:
        return _no(visit.blocked.reason, visit.blocked.message)
    if visit.blind is not None:
        done = "spec.fallback holds" if _falls_back(visit) else "the replicas stay as they are"
        return _no(ConditionReason.METRICS_UNAVAILABLE, f"{done}: {visit.blind.message}")
    if visit.decision is None:
        return NOT_LOOKED
    return _yes(ConditionReason.RECONCILED)


def _metrics(visit: Visit) -> Verdict:
    if visit.blind is not None:
        return _no(visit.blind.reason, visit.blind.message)
    if visit.outbox is None:
        return NOT_LOOKED
    return _yes(ConditionReason.SAMPLED)


def _active(visit: Visit) -> Verdict:
    if visit.blocked is not None:
        return _no(visit.blocked.reason, visit.blocked.message)
    if visit.spec is None:
        return NOT_LOOKED
    if visit.spec.mode == "Recommend":
        message = "spec.mode is Recommend: status.desiredReplicas is advice"
        return _no(ConditionReason.RECOMMEND_MODE, message)
    if visit.spec.paused == "All":
        return _no(ConditionReason.ALL, "spec.paused is All")
    if visit.blind is not None and not _falls_back(visit):
        return _no(ConditionReason.METRICS_UNAVAILABLE, visit.blind.message)
    return _yes(ConditionReason.ACTIVE)


def _falls_back(visit: Visit) -> bool:
    return visit.decision is not None and visit.decision.reason is Reason.FALLBACK


def _limited(visit: Visit) -> Verdict:
    if visit.decision is None:
        return NOT_LOOKED
    limit = visit.decision.limited_by
    if limit is None:
        return _no(ConditionReason.NOT_LIMITED)
    return _yes(ConditionReason(limit.value), LIMITS[limit])


def _paused(visit: Visit) -> Verdict:
    if visit.spec is None:
        return NOT_LOOKED
    if visit.spec.paused == "None":
        return _no(ConditionReason.NOT_PAUSED)
    return _yes(ConditionReason(visit.spec.paused), f"spec.paused is {visit.spec.paused}")


def _permitted(visit: Visit) -> Verdict:
    if not visit.forbidden:
        return _yes(ConditionReason.PERMITTED)
    rights = ", ".join(dict.fromkeys(str(each) for each in visit.forbidden))
    return _no(ConditionReason.FORBIDDEN, f"the operator needs the rights: {rights}")


def changed(before: Sequence[Condition], after: Sequence[Condition]) -> bool:
    """Whether anybody should be told: a status, a reason or a message is another one."""
    said = [(each.type, each.status, each.reason, each.message) for each in after]
    return said != [(each.type, each.status, each.reason, each.message) for each in before]
