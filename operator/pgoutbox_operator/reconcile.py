"""One visit to one OutboxScaler: observe, decide, act, report.

Level-triggered: a visit does not ask what it was woken by.
"""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING, Protocol

import structlog

from pgoutbox_operator import bodies, clock, conflicts, report, samples, target
from pgoutbox_operator.cluster import ClusterError
from pgoutbox_operator.crd import ConditionReason
from pgoutbox_operator.crd.conditions import EventReason
from pgoutbox_operator.database import MISSES
from pgoutbox_operator.notices import scaled
from pgoutbox_operator.scaling import Sample, State, decide
from pgoutbox_operator.visit import Finding, Visit
from pgoutbox_operator.wishes import policy_of
from pgoutbox_operator.writing import confirm, write

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from pgoutbox.telemetry.exporter_source import Look
    from pgoutbox_operator.cluster import Cluster, Object
    from pgoutbox_operator.crd import Condition, ScalerSpec, ScalerStatus
    from pgoutbox_operator.gate import Gate
    from pgoutbox_operator.notices import Notices
    from pgoutbox_operator.permissions import Permissions
    from pgoutbox_operator.scaling import Decision
    from pgoutbox_operator.target import Target

SAID_AT_ONCE = {
    ConditionReason.SECRET_NOT_FOUND,
    ConditionReason.DATABASE_INSECURE,
    ConditionReason.FORBIDDEN,
}


class Known(Protocol):
    """What is known of an outbox; a `Database`."""

    misses: int
    looks: int

    @property
    def look(self) -> Look | None:
        """The last look; None where it failed."""

    @property
    def age(self) -> float:
        """Seconds since then."""

    def why_unknown(self) -> tuple[ConditionReason, str]:
        """Why it failed."""


class Blocked(Exception):  # noqa: N818 - caught right above
    """Nothing can be done at this visit."""

    def __init__(self, reason: ConditionReason, message: str) -> None:
        super().__init__(message)
        self.finding = Finding(reason=reason, message=message)


class Surroundings(Protocol):
    """What the visits to all objects share."""

    cluster: Cluster
    permissions: Permissions
    notices: Notices

    @property
    def gate(self) -> Gate:
        """Whether this process may write."""

    def others(self, body: Object) -> Iterable[Object]:
        """Every other OutboxScaler that is known."""


class Reconciler:
    """Remembers one object between visits. ``body`` is replaced when its spec has changed."""

    def __init__(
        self,
        body: Object,
        around: Surroundings,
        *,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self.body = body
        self.gone = False
        """The API server knows no such object any more."""
        self.last: Visit | None = None
        self.state = State()
        self.reconciled_at: float | None = None
        """When the last visit ended, in seconds since the epoch."""
        self.actions = {"up": 0, "down": 0}
        self.conditions: tuple[Condition, ...] = ()
        """As of the last visit, whether or not they could be written."""
        self._around = around
        self._now = now
        self._status: ScalerStatus | None = None
        self._reported_at: float | None = None
        self._unsure: int | None = None
        """Replicas that were written without an answer, so they may be there or not."""
        self._told: set[str] = set()
        self._complaint = ""
        self._log = structlog.get_logger().bind(
            namespace=body["metadata"]["namespace"], name=body["metadata"]["name"]
        )

    @property
    def spec(self) -> ScalerSpec | None:
        """None where it cannot be read."""
        return bodies.spec_of(self.body)

    def forget(self) -> None:
        """Somebody else is in charge."""
        self.state, self.last, self._reported_at, self._status = State(), None, None, None
        self.conditions = ()

    async def visit(self, known: Known | None) -> None:
        """Never raises, but for cancellation: the next visit may go better."""
        if not self._around.gate.held:
            self.forget()
            return
        try:
            visit = await self._look_and_act(known)
        except Exception as error:  # noqa: BLE001 - a bug with one object is not the others'
            self._log.exception("visit failed")
            visit = self._blocked(
                ConditionReason.INTERNAL_ERROR, f"{type(error).__name__}: {error}"
            )
        self.last = visit
        try:
            await self._report(visit)
        except Exception as error:  # noqa: BLE001 - as above
            if str(error) != self._complaint:
                bug = not isinstance(error, ClusterError)
                self._log.warning("status not written", error=str(error), exc_info=bug)
            self._complaint = str(error)
        else:
            self._complaint = ""
            self.reconciled_at = time.time()

    async def _look_and_act(self, known: Known | None) -> Visit:
        spec = self.spec
        if spec is None or known is None:
            return self._blocked(ConditionReason.INVALID_SPEC, bodies.why_invalid(self.body))
        visit = Visit(generation=self._generation, spec=spec)
        try:
            seen = await self._observe(spec)
            visit = replace(visit, target=seen)
            if self._unsure == seen.scale.replicas:
                self.state = replace(self.state, wanted=self._unsure)
            self._unsure = None
            if spec.mode != "Recommend":
                await self._refuse_conflicts(spec)
            return await self._decide(visit, spec, seen, known)
        except Blocked as blocked:
            return replace(visit, blocked=blocked.finding)
        except ClusterError as error:
            forbidden = error.is_forbidden
            reason = ConditionReason.FORBIDDEN if forbidden else ConditionReason.CLUSTER_ERROR
            return replace(visit, blocked=Finding(reason=reason, message=str(error)))

    async def _observe(self, spec: ScalerSpec) -> Target:
        name = spec.scale_target_ref.name
        try:
            return await target.look(self._around.cluster, self._namespace, name)
        except ClusterError as error:
            if error.is_not_found:
                message = f"there is no Deployment {name} in the namespace {self._namespace}"
                raise Blocked(ConditionReason.TARGET_NOT_FOUND, message) from error
            raise

    async def _refuse_conflicts(self, spec: ScalerSpec) -> None:
        name = spec.scale_target_ref.name
        conflict = conflicts.of_scalers(self.body, self._around.others(self.body))
        if conflict is None:
            found = await self._around.cluster.autoscalers(self._namespace)
            conflict = conflicts.of_autoscalers(found, name)
        if conflict is not None:
            await self._tell_once(EventReason.TARGET_CONFLICT, conflict)
            raise Blocked(ConditionReason.TARGET_CONFLICT, conflict)
        self._told.discard(EventReason.TARGET_CONFLICT)

    async def _decide(self, visit: Visit, spec: ScalerSpec, seen: Target, known: Known) -> Visit:
        look = known.look
        found = None if look is None else look.statistics
        names, policy = spec.destinations, policy_of(spec)
        sample = Sample(
            fleet=seen.fleet(found.workers if found is not None else ()),
            outbox=None if found is None else samples.outbox_of(found, names, fresh=policy.stale),
            age=known.age,
        )
        if not known.looks:
            # The first look is under way. To decide without it would be one miss too many.
            return visit
        state, decision = decide(self.state, sample, self._now(), policy=policy)
        visit = replace(
            visit,
            decision=decision,
            outbox=sample.outbox,
            dead=None if found is None else samples.dead(found, names),
            sampled_at=None if found is None else found.at,
            blind=_blindness(known, missing=found is None),
        )
        if decision.adopted and spec.mode != "Recommend":
            message = (
                f"somebody else set {seen.scale.replicas} replicas instead of {self.state.wanted};"
                " going on from there"
            )
            await self._around.notices.post(self.body, EventReason.EXTERNAL_SCALE, message)
        return await self._act(visit, spec, decision, seen, state)

    async def _act(
        self, visit: Visit, spec: ScalerSpec, decision: Decision, seen: Target, state: State
    ) -> Visit:
        # What is not written is not what the target has, and nobody else's doing.
        self.state = state.unwritten(self.state, seen.scale.replicas)
        if spec.mode == "Recommend" or not decision.changed:
            return visit
        await confirm(self.body, self._around.cluster)
        self._unsure = decision.replicas
        finding = await write(
            decision,
            seen,
            cluster=self._around.cluster,
            gate=self._around.gate,
            namespace=self._namespace,
            name=spec.scale_target_ref.name,
        )
        self._unsure = None
        if finding is not None:
            return replace(visit, blocked=finding)
        self.state = state
        self.actions["up" if decision.replicas > decision.previous else "down"] += 1
        await self._around.notices.post(self.body, *scaled(decision))
        return replace(visit, written=True)

    async def _report(self, visit: Visit) -> None:
        visit = replace(visit, forbidden=tuple(self._around.permissions.missing(self._namespace)))
        before = self._status or bodies.status_of(self.body)
        after = report.status_of(visit, before, clock.now())
        self.conditions = after.conditions
        age = None if self._reported_at is None else self._now() - self._reported_at
        if not (report.is_due(before, after, age) and self._around.gate.held):
            return
        sent = report.as_patch(after)
        try:
            stored = await self._around.cluster.write_status(self.body, sent)
        except ClusterError as error:
            if error.is_gone:
                self.gone = True
                return
            raise
        self._status, self._reported_at = after, self._now()
        lost = report.pruned(sent, stored.get("status"))
        if lost:
            message = (
                f"the cluster's OutboxScaler definition is too old: it lacks {', '.join(lost)}"
            )
            await self._tell_once(EventReason.DEFINITION_OUTDATED, message)

    async def _tell_once(self, reason: EventReason, message: str) -> None:
        if reason not in self._told:
            self._told.add(reason)
            await self._around.notices.post(self.body, reason, message)

    def _blocked(self, reason: ConditionReason, message: str) -> Visit:
        finding = Finding(reason=reason, message=message)
        return Visit(generation=self._generation, spec=self.spec, blocked=finding)

    @property
    def _namespace(self) -> str:
        namespace: str = self.body["metadata"]["namespace"]
        return namespace

    @property
    def _generation(self) -> int:
        return int(self.body["metadata"].get("generation", 0))


def _blindness(known: Known, *, missing: bool) -> Finding | None:
    """One look may fail. What no further look can cure is said at once."""
    if not missing or not known.misses:
        return None
    reason, message = known.why_unknown()
    if known.misses < MISSES and reason not in SAID_AT_ONCE:
        return None
    return Finding(reason=reason, message=message)
