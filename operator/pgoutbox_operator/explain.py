"""What the operator would do about an object now, and why, in sentences."""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace
from typing import TYPE_CHECKING

from pgoutbox.errors import PgOutboxError
from pgoutbox_operator import bodies, conflicts, samples, target
from pgoutbox_operator.conditions import LIMITS
from pgoutbox_operator.connections import place_of
from pgoutbox_operator.scaling import Reason, Sample, State, decide
from pgoutbox_operator.wishes import policy_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pgoutbox.database.statistics import Statistics
    from pgoutbox_operator.cluster import Object
    from pgoutbox_operator.crd import ScalerSpec
    from pgoutbox_operator.database import Database
    from pgoutbox_operator.run import Operator
    from pgoutbox_operator.scaling import Decision, Outbox, Policy

REASONS = {
    Reason.STEADY: "neither more nor fewer are needed",
    Reason.ARRIVALS: "more are needed for what arrives",
    Reason.BACKLOG: "more are needed to drain the backlog in time",
    Reason.SURPLUS: "fewer are enough",
    Reason.STABILIZING: "fewer would be enough, but not for long enough yet",
    Reason.DOWNSTREAM_LIMITED: "the destinations fail, and take no more",
    Reason.DATABASE_BOUND: "more would get nothing more through: the database is the limit",
    Reason.RECOVERING: "the destinations accept messages again; more are added step by step",
    Reason.IDLE: "there has been nothing to do for long enough",
    Reason.WAKE: "there is something to do, and nobody to do it",
    Reason.BOUNDS: "minReplicas, maxReplicas or a cap asks for it",
    Reason.STARTING: "fewer would be enough, but that takes longer to be sure of than this command",
    Reason.METRICS_UNAVAILABLE: "the database does not answer, so nothing changes",
    Reason.METRICS_STALE: "what is known is too old, so nothing changes",
    Reason.FALLBACK: "nothing has been known for long, so spec.fallback holds",
    Reason.PAUSED: "spec.paused forbids the change",
}


class NothingToExplain(PgOutboxError):  # noqa: N818 - reads better where it is caught
    """There is no such object, or none that can be read."""


async def explain(operator: Operator, namespace: str, name: str, *, seconds: float) -> list[str]:
    """Look twice, ``seconds`` apart, since rates need that; change nothing. Raises ClusterError."""
    body = await operator.cluster.scaler(namespace, name)
    spec = bodies.spec_of(body)
    if spec is None:
        raise NothingToExplain(bodies.why_invalid(body))
    database = operator.open_database(place_of(namespace, spec))
    try:
        lines = await _decision(operator, body, spec, database, seconds)
    finally:
        await database.close()
    return [*lines, *_said(body)]


async def _decision(
    operator: Operator, body: Object, spec: ScalerSpec, database: Database, seconds: float
) -> list[str]:
    policy = policy_of(spec)
    state, began = State(), time.monotonic()
    await database.tick()
    state, decision = decide(
        state, await _sample(operator, body, spec, database), began, policy=policy
    )
    if database.error is None:
        await asyncio.sleep(seconds)
        await database.tick()
        sample = await _sample(operator, body, spec, database)
        _, decision = decide(replace(state, wanted=None), sample, time.monotonic(), policy=policy)
    lines = list(_sentences(decision, policy, spec))
    if database.error is not None:
        lines.append(f"Nothing is known of the outbox: {database.why_unknown()[1]}.")
    found = await operator.cluster.autoscalers(body["metadata"]["namespace"])
    conflict = conflicts.of_autoscalers(found, spec.scale_target_ref.name)
    if conflict is not None and spec.mode != "Recommend":
        lines.append(f"It does nothing at all, since {conflict}.")
    return lines


async def _sample(operator: Operator, body: Object, spec: ScalerSpec, database: Database) -> Sample:
    namespace = body["metadata"]["namespace"]
    seen = await target.look(operator.cluster, namespace, spec.scale_target_ref.name)
    found = None if database.look is None else database.look.statistics
    return Sample(
        fleet=seen.fleet(found.workers if found is not None else ()),
        outbox=None if found is None else _outbox(found, spec),
        age=database.age,
    )


def _outbox(found: Statistics, spec: ScalerSpec) -> Outbox:
    return samples.outbox_of(found, spec.destinations, fresh=policy_of(spec).stale)


def _sentences(decision: Decision, policy: Policy, spec: ScalerSpec) -> Iterator[str]:
    numbers, name = decision.numbers, spec.scale_target_ref.name
    verb = "would scale" if spec.mode == "Recommend" else "scales"
    why = REASONS.get(decision.reason, decision.reason.value)
    if decision.changed:
        yield f"It {verb} {name} from {decision.previous} to {decision.replicas} replicas: {why}."
    else:
        yield f"It leaves {name} at {decision.previous} replicas: {why}."
    yield (
        f"{numbers.ready} messages are ready, the oldest for {numbers.oldest_ready_age:.1f} s;"
        f" none should become older than {policy.objective:g} s."
    )
    if numbers.rate_per_replica is not None:
        yield (
            f"{numbers.arrivals:.3g} messages a second arrive and {numbers.finished:.3g} are done;"
            f" one fully used replica does {numbers.rate_per_replica:.3g}, and those that there are"
            f" are used to {numbers.utilization:.0%}."
        )
        yield (
            f"Fewer than {numbers.needed_up} would be too few, more than {numbers.needed_down} too"
            f" many; at most {numbers.allowed} are allowed."
        )
    else:
        yield "It is not known yet what one replica gets through."
    if numbers.failing:
        yield f"{numbers.failing:.0%} of the attempts fail."
    if decision.limited_by is not None:
        limit = LIMITS.get(decision.limited_by, decision.limited_by.value)
        yield f"It is limited ({decision.limited_by.value}): {limit}."


def _said(body: Object) -> Iterator[str]:
    """What the operator that is running wrote into the status."""
    status = bodies.status_of(body)
    if not status.conditions:
        yield "No operator has looked at it yet."
        return
    if status.last_scale_time is not None:
        yield f"It was last scaled at {status.last_scale_time} ({status.last_scale_reason})."
    for each in status.conditions:
        message = f": {each.message}" if each.message else ""
        yield f"{each.type} is {each.status} ({each.reason}){message}"
