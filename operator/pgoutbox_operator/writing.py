"""Replicas are written, and nothing else of a Deployment."""

from __future__ import annotations

from http import HTTPStatus
from typing import TYPE_CHECKING

from pgoutbox_operator.cluster import ClusterError
from pgoutbox_operator.crd import ConditionReason
from pgoutbox_operator.visit import Finding

if TYPE_CHECKING:
    from pgoutbox_operator.cluster import Cluster, Object
    from pgoutbox_operator.gate import Gate
    from pgoutbox_operator.scaling import Decision
    from pgoutbox_operator.target import Target


async def confirm(body: Object, cluster: Cluster) -> None:
    """Raises ClusterError where there is no such object any more, or where nobody knows.

    What happened to it while the watch was broken is told by nobody, and neither what was deleted
    nor what it said before shall scale anything. There is no right to ask for the object; this
    changes nothing.
    """
    try:
        stored = await cluster.write_status(body, {})
    except ClusterError as error:
        # Told by a condition, and no reason to do nothing.
        if not error.is_forbidden:
            raise
        return
    known = body["metadata"].get("generation")
    generation = stored.get("metadata", {}).get("generation", known)
    if generation != known:
        raise ClusterError(f"spec is at generation {generation} by now, and the watch is not yet")


async def write(
    decision: Decision, seen: Target, *, cluster: Cluster, gate: Gate, namespace: str, name: str
) -> Finding | None:
    """None where it is done; else why not. Raises ClusterError where nobody knows."""
    version = seen.scale.version
    for last in (False, True):
        if not gate.held:
            message = "another replica of the operator leads now"
            return Finding(reason=ConditionReason.PENDING, message=message)
        try:
            await cluster.set_scale(namespace, name, decision.replicas, version=version)
        except ClusterError as error:
            if last or not error.is_conflict:
                return refused(error)
        else:
            return None
        # Each change of the Deployment's status moves the version, and says nothing.
        fresh = await cluster.scale(namespace, name)
        if fresh.replicas != decision.previous:
            message = f"somebody else has just set {fresh.replicas} replicas"
            return Finding(reason=ConditionReason.CLUSTER_ERROR, message=message)
        version = fresh.version
    raise AssertionError("the second try returns")


def refused(error: ClusterError) -> Finding:
    """In a condition's words. Raises it again where nobody knows whether it was done."""
    if error.status is None or error.status >= HTTPStatus.INTERNAL_SERVER_ERROR:
        raise error
    forbidden = error.is_forbidden
    reason = ConditionReason.FORBIDDEN if forbidden else ConditionReason.CLUSTER_ERROR
    return Finding(reason=reason, message=str(error))
