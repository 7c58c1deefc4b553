"""Events about an object, for `kubectl describe`. They tell; nothing depends on them."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING

import structlog

from pgoutbox_operator import clock
from pgoutbox_operator.cluster import ClusterError
from pgoutbox_operator.crd import API_VERSION, KIND
from pgoutbox_operator.crd.conditions import EventReason

if TYPE_CHECKING:
    from pgoutbox_operator.cluster import Cluster, Object
    from pgoutbox_operator.scaling import Decision

COMPONENT = "pgoutbox-operator"
LONGEST_MESSAGE = 1024
WARNINGS = {EventReason.TARGET_CONFLICT, EventReason.DEFINITION_OUTDATED}


class Notices:
    """Posts Events as ``instance``."""

    def __init__(self, cluster: Cluster, *, instance: str) -> None:
        self._cluster = cluster
        self._instance = instance
        self._log = structlog.get_logger()

    async def post(self, about: Object, reason: EventReason, message: str) -> None:
        """Log it, and post an Event. Never fails: what is forbidden is told by a condition."""
        of = about["metadata"]
        kind = "Warning" if reason in WARNINGS else "Normal"
        tell = self._log.warning if kind == "Warning" else self._log.info
        tell(message, reason=reason.value, namespace=of["namespace"], name=of["name"])
        time = clock.now()
        event = {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {
                "name": f"{of['name'][:200]}.{uuid.uuid4().hex[:16]}",
                "namespace": of["namespace"],
            },
            "involvedObject": {
                "apiVersion": API_VERSION,
                "kind": KIND,
                "namespace": of["namespace"],
                "name": of["name"],
                "uid": of["uid"],
            },
            "type": kind,
            "reason": reason.value,
            "message": message[:LONGEST_MESSAGE],
            "firstTimestamp": time,
            "lastTimestamp": time,
            "count": 1,
            "source": {"component": COMPONENT},
            "reportingComponent": COMPONENT,
            "reportingInstance": self._instance,
        }
        try:
            await self._cluster.post_event(of["namespace"], event)
        except ClusterError as error:
            self._log.info("event not posted", reason=reason.value, error=str(error))


def scaled(decision: Decision) -> tuple[EventReason, str]:
    """What to post about replicas that were changed."""
    up = decision.replicas > decision.previous
    numbers = decision.numbers
    rate = numbers.rate_per_replica
    known = f", {rate:.3g}/s per replica" if rate is not None else ""
    said = (
        f"from {decision.previous} to {decision.replicas} replicas ({decision.reason.value}):"
        f" {numbers.ready} messages ready, the oldest for {numbers.oldest_ready_age:.0f} s,"
        f" {numbers.arrivals:.3g}/s arriving{known}"
    )
    return (EventReason.SCALED_UP if up else EventReason.SCALED_DOWN), said
