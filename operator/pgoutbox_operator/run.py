"""The whole operator, in one event loop."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import uuid
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import kopf
import structlog

from pgoutbox.telemetry.exporter import Exporter
from pgoutbox.telemetry.probes import Probes, Readiness
from pgoutbox_operator.cluster import Cluster, ClusterError
from pgoutbox_operator.connections import Connection
from pgoutbox_operator.crd import GROUP, PLURAL
from pgoutbox_operator.database import Database
from pgoutbox_operator.gate import LeaseGate, Open
from pgoutbox_operator.handlers import registry
from pgoutbox_operator.metrics import ScalerMetrics
from pgoutbox_operator.notices import Notices
from pgoutbox_operator.permissions import Permissions
from pgoutbox_operator.rights import LEASE
from pgoutbox_operator.session import ACCOUNT, Link, Server, find_server
from pgoutbox_operator.supervisor import Led, Supervisor

if TYPE_CHECKING:
    from collections.abc import Collection

    from pgoutbox_operator.connections import Place

CONNECTIONS = Path("/etc/pgoutbox/connections")
DEFINITION_SECONDS = 5.0
LIFE = uuid.uuid4().hex[:8]
ANEW_SECONDS = 5.0
"""Before watching begins anew after it failed for good."""
EXIT_SECONDS = 20.0
"""Less than the pod's grace period: should kopf not end, we do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """How to run."""

    namespaces: tuple[str, ...] = ()
    """None named: all of them."""
    lease: bool = False
    """Take turns with other replicas."""
    port: int = 8080
    connections: Path = CONNECTIONS
    insecure: bool = False
    """DSNs need not verify the server."""


def identity() -> str:
    """Of this process, as others read it; on a host there may be several."""
    given = os.environ.get("POD_NAME") or os.environ.get("POD_ID")
    return given or f"{socket.gethostname()}-{LIFE}"


def home() -> str:
    """The operator's own namespace."""
    given = os.environ.get("POD_NAMESPACE")
    stored = ACCOUNT / "namespace"
    if given or not stored.is_file():
        return given or "default"
    return stored.read_text(encoding="utf-8").strip()


class Operator:
    """All parts, put together. Made inside the event loop."""

    def __init__(self, options: Options, server: Server | None = None) -> None:
        self._options = options
        # That of all waits: what is said to have taken so long has taken so long.
        self._clock = asyncio.get_running_loop().time
        self.permissions = Permissions(now=self._clock)
        self.link = Link(server or find_server(), self.permissions)
        self.cluster = Cluster(self.link)
        self.lease = (
            LeaseGate(self.cluster, home(), LEASE, identity=identity(), now=self._clock)
            if options.lease
            else None
        )
        self.supervisor = Supervisor(
            cluster=self.cluster,
            permissions=self.permissions,
            notices=Notices(self.cluster, instance=identity()),
            gate=self.lease or Open(),
            open_database=self.open_database,
            now=self._clock,
        )
        metrics = Exporter(Led(self.supervisor)).registry
        metrics.register(ScalerMetrics(self.supervisor))
        self.readiness = Readiness()
        self.probes = Probes(port=options.port, registry=metrics, readiness=self.readiness)
        self._campaign: asyncio.Task[None] | None = None
        self._log = structlog.get_logger()

    def open_database(self, place: Place) -> Database:
        """One that is not connected yet."""
        connection = Connection(
            place,
            self.cluster,
            folder=self._options.connections,
            insecure=self._options.insecure,
            clock=self._clock,
        )
        return Database(place, connection, clock=self._clock)

    async def run(self, stop: asyncio.Event | None = None) -> None:
        """Until a signal, or until ``stop`` is set. Raises ProbesUnavailable."""
        told = stop or asyncio.Event()
        if stop is None:
            _tell_of_signals(told)
        # kopf would ask for the name of the user, and a pod's user may have none.
        os.environ.setdefault("POD_ID", identity())
        await self.probes.start()
        where = self._options.namespaces or "all"
        self._log.info("operator started", namespaces=where, port=self.probes.port)
        try:
            while not told.is_set():
                await self._live(told, signals=stop is None)
        finally:
            self.readiness.draining = True
            await self.probes.stop()
            await self.link.close()

    async def _live(self, stop: asyncio.Event, *, signals: bool) -> None:
        """Until it shall stop, or until kopf gives up.

        That takes an answer which it does not expect, as an error within a watch, or a list that is
        not found since the definition is away. To begin anew is no worse than a new process, and
        needs no patience with the kubelet.
        """
        if self.lease is not None:
            self._campaign = asyncio.create_task(self.lease.run(), name="lease")
        try:
            await self._wait_for_definition(stop)
            if not stop.is_set():
                self.readiness.ready = True
                await self._watch(stop, signals=signals)
        except Exception as error:  # noqa: BLE001 - kopf's own errors are not in its interface
            self._log.error("watching failed", error=repr(error), again_in=ANEW_SECONDS)
        finally:
            self._end_campaign()
        # At once where it shall stop.
        await _wait(stop, ANEW_SECONDS)

    async def _watch(self, stop: asyncio.Event, *, signals: bool) -> None:
        namespaces = self._options.namespaces
        ours = asyncio.all_tasks()
        tasks = await kopf.spawn_tasks(
            registry=registry(self.supervisor, self.link, on_stop=partial(self._stop, stop)),
            standalone=True,
            clusterwide=not namespaces,
            namespaces=namespaces,
            stop_flag=stop,
        )
        if signals:
            # It has taken them over, and would not tell.
            _tell_of_signals(stop)
        guard = asyncio.create_task(self._end_in_time(tasks), name="guard")
        try:
            await kopf.run_tasks(tasks, ignored={*ours, guard})
        finally:
            guard.cancel()

    async def _stop(self, stop: asyncio.Event) -> None:
        """While requests can still be sent. What is scaled stays as it is."""
        if stop.is_set():
            # Whatever hangs from here on, the probes no longer say that all is well.
            self.readiness.draining = True
            await self.probes.stop()
        await self.supervisor.stop()
        self._end_campaign()
        if self.lease is not None:
            await self.lease.release()

    def _end_campaign(self) -> None:
        """What is released would be taken again."""
        if self._campaign is not None:
            self._campaign.cancel()

    async def _end_in_time(self, tasks: Collection[asyncio.Task[Any]]) -> None:
        """Once a task of kopf has ended, all do. Should they hang, nothing would go on."""
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        await asyncio.sleep(EXIT_SECONDS)
        self._log.critical("the end takes too long", seconds=EXIT_SECONDS)
        os.kill(os.getpid(), signal.SIGKILL)

    async def _wait_for_definition(self, stop: asyncio.Event) -> None:
        """Wait, since kopf looks for it once, and then never again."""
        said = ""
        while not stop.is_set():
            try:
                if await self.cluster.has_definition():
                    return
                why = f"there is no definition {PLURAL}.{GROUP}: `pgoutbox-operator crd` prints it"
            except ClusterError as error:
                why = str(error)
            if why != said:
                said = why
                self._log.warning("waiting for the cluster", why=why)
            await _wait(stop, DEFINITION_SECONDS)


async def _wait(stop: asyncio.Event, seconds: float) -> None:
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await stop.wait()


def _tell_of_signals(stop: asyncio.Event) -> None:
    """As process 1 of a pod there is no default for them."""
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
