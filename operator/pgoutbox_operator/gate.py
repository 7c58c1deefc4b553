"""One writer at a time: a Lease that one replica of the operator holds, and the others wait for.

What it says about time is by whoever wrote it. So nobody compares clocks: a lease has expired when
it has not changed for its duration by one's own monotonic clock.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Protocol

import structlog

from pgoutbox_operator import clock
from pgoutbox_operator.cluster import ClusterError

if TYPE_CHECKING:
    from collections.abc import Callable

    from pgoutbox_operator.cluster import Cluster, Object

DURATION = 15.0
"""Seconds after which others take over."""
DEADLINE = 10.0
"""Seconds after which the holder stops writing when it could not renew."""
RETRY = 2.0


class Gate(Protocol):
    """Whether this process may write."""

    @property
    def held(self) -> bool:
        """Asked right before each write."""


class Open:
    """For the only replica."""

    held = True


class LeaseGate:
    """The one who holds the Lease."""

    def __init__(
        self,
        cluster: Cluster,
        namespace: str,
        name: str,
        *,
        identity: str,
        now: Callable[[], float],
    ) -> None:
        self._cluster = cluster
        self._namespace = namespace
        self._name = name
        self._identity = identity
        self._now = now
        self._renewed_at: float | None = None
        self._seen: tuple[object, ...] | None = None
        self._seen_at = 0.0
        self._free_at = 0.0
        """When it may be taken, should its holder not renew it."""
        self._log = structlog.get_logger()
        self._was_held = False
        self._failing = False

    @property
    def held(self) -> bool:
        """Until shortly before others may take it over."""
        return self._renewed_at is not None and self._now() - self._renewed_at < DEADLINE

    async def run(self) -> None:
        """Take it, and keep it, until cancelled."""
        while True:
            try:
                await self.step()
                self._failing = False
            except Exception as error:  # noqa: BLE001 - who does not try again never leads again
                if not self._failing:
                    said = str(error) if isinstance(error, ClusterError) else repr(error)
                    self._log.warning("lease failed", lease=self._name, error=said)
                self._failing = True
            self._tell()
            await asyncio.sleep(self.pause)

    @property
    def pause(self) -> float:
        """Seconds until the next try; no more than until the lease is over."""
        left = self._free_at - self._now()
        return min(left, RETRY) if left > 0 else RETRY

    async def step(self) -> None:
        """One try. Raises ClusterError."""
        # From before the request: it may have been granted long before its answer is here.
        asked_at = self._now()
        lease = await self._cluster.lease(self._namespace, self._name)
        try:
            if lease is None:
                await self._cluster.create_lease(self._namespace, self._ours(None))
            elif self._may_take(lease):
                await self._cluster.update_lease(self._namespace, self._ours(lease))
            else:
                self._renewed_at = None
                return
        except ClusterError as error:
            if not error.is_conflict:
                raise
            self._renewed_at = None
            return
        self._renewed_at = asked_at

    async def release(self) -> None:
        """So that another one need not wait. Never fails."""
        if not self.held:
            return
        self._renewed_at = None
        try:
            lease = await self._cluster.lease(self._namespace, self._name)
            if (
                lease is not None
                and (lease.get("spec") or {}).get("holderIdentity") == self._identity
            ):
                lease["spec"]["holderIdentity"] = ""
                await self._cluster.update_lease(self._namespace, lease)
        except ClusterError as error:
            self._log.info("lease not released", lease=self._name, error=str(error))

    def _may_take(self, lease: Object) -> bool:
        spec = lease.get("spec") or {}
        holder = spec.get("holderIdentity") or ""
        seen = (holder, spec.get("renewTime"), lease["metadata"].get("resourceVersion"))
        if seen != self._seen:
            self._seen, self._seen_at = seen, self._now()
        duration = float(spec.get("leaseDurationSeconds") or DURATION)
        self._free_at = 0.0 if holder in {"", self._identity} else self._seen_at + duration
        return self._now() >= self._free_at

    def _ours(self, lease: Object | None) -> Object:
        time = clock.now_exactly()
        if lease is None:
            lease = {
                "apiVersion": "coordination.k8s.io/v1",
                "kind": "Lease",
                "metadata": {"name": self._name, "namespace": self._namespace},
            }
        spec = dict(lease.get("spec") or {})
        if spec.get("holderIdentity") != self._identity:
            spec["acquireTime"] = time
            spec["leaseTransitions"] = int(spec.get("leaseTransitions") or 0) + 1
        spec |= {
            "holderIdentity": self._identity,
            "leaseDurationSeconds": int(DURATION),
            "renewTime": time,
        }
        return {**lease, "spec": spec}

    def _tell(self) -> None:
        if self.held != self._was_held:
            self._was_held = self.held
            said = "leading" if self.held else "not leading"
            self._log.info(said, lease=self._name, identity=self._identity)
