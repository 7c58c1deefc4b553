"""The whole operator, in one event loop."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

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
from pgoutbox_operator.session import ACCOUNT, Link, Server, find_server
from pgoutbox_operator.supervisor import Led, Supervisor

if TYPE_CHECKING:
    from pgoutbox_operator.connections import Place

CONNECTIONS = Path("/etc/pgoutbox/connections")
DEFINITION_SECONDS = 5.0
LEASE = "pgoutbox-operator"


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
    """Of this process, as others read it."""
    return os.environ.get("POD_NAME") or os.environ.get("POD_ID") or socket.gethostname()


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
        self.permissions = Permissions()
        self.link = Link(server or find_server(), self.permissions)
        self.cluster = Cluster(self.link)
        self.lease = (
            LeaseGate(self.cluster, home(), LEASE, identity=identity(), now=time.monotonic)
            if options.lease
            else None
        )
        self.supervisor = Supervisor(
            cluster=self.cluster,
            permissions=self.permissions,
            notices=Notices(self.cluster, instance=identity()),
            gate=self.lease or Open(),
            open_database=self.open_database,
        )
        metrics = Exporter(Led(self.supervisor)).registry
        metrics.register(ScalerMetrics(self.supervisor))
        self.readiness = Readiness()
        self.probes = Probes(port=options.port, registry=metrics, readiness=self.readiness)
        self._log = structlog.get_logger()

    def open_database(self, place: Place) -> Database:
        """One that is not connected yet."""
        connection = Connection(
            place,
            self.cluster,
            folder=self._options.connections,
            insecure=self._options.insecure,
            clock=time.monotonic,
        )
        return Database(place, connection)

    async def run(self, stop: asyncio.Event | None = None) -> None:
        """Until a signal, or until ``stop`` is set. Raises ProbesUnavailable."""
        stop = stop or _signals()
        # kopf would ask for the name of the user, and a pod's user may have none.
        os.environ.setdefault("POD_ID", identity())
        await self.probes.start()
        where = self._options.namespaces or "all"
        self._log.info("operator started", namespaces=where, port=self.probes.port)
        campaign = asyncio.create_task(self.lease.run(), name="lease") if self.lease else None
        try:
            await self._wait_for_definition(stop)
            if not stop.is_set():
                self.readiness.ready = True
                await self._watch(stop)
        finally:
            self.readiness.draining = True
            if campaign is not None:
                campaign.cancel()
            await self.probes.stop()
            await self.link.close()

    async def _watch(self, stop: asyncio.Event) -> None:
        namespaces = self._options.namespaces
        await kopf.operator(
            registry=registry(self.supervisor, self.link, on_stop=self._stop),
            standalone=True,
            clusterwide=not namespaces,
            namespaces=namespaces,
            stop_flag=stop,
        )

    async def _stop(self) -> None:
        """While requests can still be sent. What is scaled stays as it is."""
        # Whatever hangs from here on, the probes no longer say that all is well.
        self.readiness.draining = True
        await self.probes.stop()
        await self.supervisor.stop()
        if self.lease is not None:
            await self.lease.release()

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
            with suppress(TimeoutError):
                await asyncio.wait_for(stop.wait(), DEFINITION_SECONDS)


def _signals() -> asyncio.Event:
    """Until kopf takes them over. As process 1 of a pod there is no default for them."""
    told = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, told.set)
    return told
