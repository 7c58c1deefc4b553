"""The HTTP endpoints of workers and of the exporter: probes and ``/metrics``."""

from __future__ import annotations

import asyncio
import os
import socket
from dataclasses import dataclass
from http import HTTPStatus
from typing import TYPE_CHECKING

from aiohttp import web
from prometheus_client.exposition import choose_encoder

from pgoutbox.errors import PgOutboxError

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

STOP_SECONDS = 1.0
"""How long `Probes.stop` waits for requests under way."""


class ProbesUnavailable(PgOutboxError):  # noqa: N818 - reads better where it is caught
    """The endpoints cannot be served at this address."""


@dataclass(slots=True)
class Readiness:
    """What ``/readyz`` answers from; the worker sets it.

    Ready once the schema was checked over a working connection, and until the drain. A database
    or a destination that fails later changes nothing: taking pods out would not repair it.
    """

    ready: bool = False
    draining: bool = False

    @property
    def state(self) -> str:
        """``starting``, ``ready`` or ``draining``."""
        if self.draining:
            return "draining"
        return "ready" if self.ready else "starting"


class Probes:
    """Serves the endpoints on the worker's own event loop, so that an answer proves it alive."""

    def __init__(
        self,
        *,
        port: int,
        registry: CollectorRegistry,
        readiness: Readiness | None = None,
        host: str | None = None,
        setting: str = "PGOUTBOX_HTTP__PORT",
    ) -> None:
        """``port`` 0 takes any free one; ``host`` None listens on every interface, v4 and v6.

        ``setting``: where a person chose the port.
        """
        self.readiness = readiness or Readiness()
        self._registry = registry
        self._host = host
        self._asked_port = port
        self._setting = setting
        self._socket: socket.socket | None = None
        self._runner: web.AppRunner | None = None

    @property
    def port(self) -> int:
        """The port that is listened on; the one asked for before `start`."""
        if self._socket is None:
            return self._asked_port
        port: int = self._socket.getsockname()[1]
        return port

    async def start(self) -> None:
        """Listen. Raises `ProbesUnavailable` where the address is taken or not ours."""
        listening = self._listen()
        app = web.Application()
        app.router.add_get("/livez", self._livez)
        app.router.add_get("/healthz", self._livez)
        app.router.add_get("/readyz", self._readyz)
        app.router.add_get("/metrics", self._metrics)
        self._runner = web.AppRunner(
            app, access_log=None, handle_signals=False, shutdown_timeout=STOP_SECONDS
        )
        await self._runner.setup()
        self._socket = listening
        await web.SockSite(self._runner, listening).start()

    async def stop(self) -> None:
        """Stop listening and end within two seconds, whatever clients do. May be repeated."""
        runner, self._runner = self._runner, None
        if runner is None:
            return
        try:
            async with asyncio.timeout(2 * STOP_SECONDS):
                await runner.cleanup()
        except TimeoutError:
            # A client that neither reads nor leaves; the process's end closes its connection.
            return

    def _listen(self) -> socket.socket:
        try:
            return _bound(self._host, self._asked_port)
        except OSError as error:
            # The standard library appends the address to the words of the system.
            reason = os.strerror(error.errno) if error.errno else str(error)
            where = f"{self._host or 'every interface'}, port {self._asked_port}"
            raise ProbesUnavailable(
                f"cannot serve probes and metrics on {where}: {reason}; "
                f"set {self._setting} to another port (0 takes any free one)"
            ) from error

    async def _livez(self, _request: web.Request) -> web.Response:
        return web.Response(text="alive\n")

    async def _readyz(self, _request: web.Request) -> web.Response:
        state = self.readiness.state
        status = HTTPStatus.OK if state == "ready" else HTTPStatus.SERVICE_UNAVAILABLE
        return web.Response(text=f"{state}\n", status=status)

    async def _metrics(self, request: web.Request) -> web.Response:
        encode, content_type = choose_encoder(request.headers.get("Accept", ""))
        return web.Response(body=encode(self._registry), headers={"Content-Type": content_type})


def _bound(host: str | None, port: int) -> socket.socket:
    if host is not None:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        return socket.create_server((host, port), family=family)
    if socket.has_dualstack_ipv6():
        # Whichever family the cluster gives its pods.
        return socket.create_server(("", port), family=socket.AF_INET6, dualstack_ipv6=True)
    return socket.create_server(("", port))
