"""The Deployment that is scaled, and its pods."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pgoutbox_operator import clock
from pgoutbox_operator.scaling import Fleet

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from pgoutbox.database.statistics import WorkerStatistics
    from pgoutbox_operator.cluster import Cluster, Object, Scale

LONGEST_STARTUP = 900.0
"""Whatever takes longer did not take so long to start: its node was away, say."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """One look at it."""

    scale: Scale
    pods: tuple[Object, ...]

    @property
    def ready(self) -> int:
        """Pods that are ready and stay."""
        return sum(1 for pod in self.pods if not _is_leaving(pod) and _is_ready(pod))

    @property
    def terminating(self) -> int:
        """Pods that still hold database connections while they go."""
        return sum(1 for pod in self.pods if _is_leaving(pod) and not _is_over(pod))

    def fleet(self, workers: Sequence[WorkerStatistics]) -> Fleet:
        """What the law wants to know of it."""
        return Fleet(
            replicas=self.scale.replicas,
            terminating=self.terminating,
            startup=startup(self.pods, workers),
        )


async def look(cluster: Cluster, namespace: str, deployment: str) -> Target:
    """Raises ClusterError."""
    scale = await cluster.scale(namespace, deployment)
    # An empty selector would match every pod of the namespace.
    pods = await cluster.pods(namespace, scale.selector) if scale.selector else []
    return Target(scale=scale, pods=tuple(pods))


def startup(pods: Iterable[Object], workers: Sequence[WorkerStatistics]) -> float | None:
    """Seconds from a pod's creation to its worker's start, as nine of ten pods need at most.

    None while no pod's worker is known. Two clocks tell it, so a second or two are noise.
    """
    started = {worker.owner: worker.started_at for worker in workers}
    seconds = []
    for pod in pods:
        begin = started.get(pod["metadata"]["name"])
        if begin is None or _restarted(pod):
            continue
        took = clock.parse(begin) - clock.parse(pod["metadata"]["creationTimestamp"])
        if took <= LONGEST_STARTUP:
            seconds.append(max(took, 1.0))
    if not seconds:
        return None
    return sorted(seconds)[math.ceil(0.9 * len(seconds)) - 1]


def _restarted(pod: Object) -> bool:
    """A container that was started anew keeps the pod's name, and its creation."""
    statuses = pod.get("status", {}).get("containerStatuses") or []
    return any(each.get("restartCount") for each in statuses)


def _is_leaving(pod: Object) -> bool:
    return "deletionTimestamp" in pod["metadata"]


def _is_over(pod: Object) -> bool:
    return pod.get("status", {}).get("phase") in {"Succeeded", "Failed"}


def _is_ready(pod: Object) -> bool:
    conditions = pod.get("status", {}).get("conditions") or []
    return any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)
