"""The whole operator in a thread of its own, before a kmock server and a made-up outbox."""

from __future__ import annotations

import asyncio
import threading
import time
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import kmock

from pgoutbox_operator.database import Database
from pgoutbox_operator.run import Operator, Options
from pgoutbox_operator.session import Server, bearer
from tests.support.kube import NAMESPACE, FakeKube
from tests.support.visiting import FakeOutbox

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from pathlib import Path

    from pgoutbox.telemetry.exporter_source import Look
    from pgoutbox_operator.connections import Place
    from tests.support.kube import Object

PATIENCE = 10.0


async def eventually(holds: Callable[[], object], *, within: float = PATIENCE) -> None:
    """Return once it holds."""
    deadline = time.monotonic() + within
    while not holds():
        if time.monotonic() > deadline:
            raise AssertionError("it did not become true")
        await asyncio.sleep(0.02)


class MadeUpDatabase(Database):
    """Looks at a `FakeOutbox`."""

    outbox: FakeOutbox

    async def ask(self) -> Look:
        # Whoever asks too early or too late reads the Secret all the same.
        await self._connection.dsn()
        look = self.outbox.look
        if look is None:
            raise ConnectionRefusedError("nobody answers")
        return look


class Running:
    """An operator that works."""

    def __init__(
        self, kube: FakeKube, token: Path, options: Options, *, dsn: str | None = None
    ) -> None:
        """``dsn``: of a real outbox, instead of one that is made up."""
        self.kube = kube
        self.outbox = FakeOutbox()
        self._real = dsn is not None
        if dsn is not None:
            kube.secret = {"dsn": dsn}
        self.failure: BaseException | None = None
        self.operator: Operator | None = None
        self._server = Server(str(kube.mock.url).rstrip("/"), bearer(token), None)
        self._options = options
        self._stop: Callable[[], None] = lambda: None
        self._thread = threading.Thread(target=self._work, name="operator", daemon=True)

    @property
    def alive(self) -> bool:
        return self._thread.is_alive()

    @property
    def port(self) -> int:
        if self.operator is None:
            raise AssertionError("it has started")
        return self.operator.probes.port

    async def look_after(
        self, body: Object, *, ready: tuple[str, str] = ("True", "Reconciled")
    ) -> None:
        """Start with this scaler, and return once its condition Ready is so."""
        self.kube.put(body)
        self.start()
        await eventually(lambda: self.kube.conditions.get("Ready") == ready)

    def start(self) -> None:
        self._thread.start()

    async def stop(self) -> float:
        """Seconds that it took."""
        began = time.monotonic()
        self._stop()
        await eventually(lambda: not self.alive)
        if self.failure is not None:
            raise self.failure
        return time.monotonic() - began

    def _work(self) -> None:
        try:
            asyncio.run(self._run())
        except BaseException as error:  # noqa: BLE001 - raised again by whoever stops it
            self.failure = error

    async def _run(self) -> None:
        loop, stop = asyncio.get_running_loop(), asyncio.Event()
        self._stop = lambda: (loop.call_soon_threadsafe(stop.set), None)[1]
        operator = Operator(self._options, self._server)
        if not self._real:
            operator.supervisor._open_database = self._open_database
        self.operator = operator
        await operator.run(stop)

    def _open_database(self, place: Place) -> Database:
        if self.operator is None:
            raise AssertionError("it runs")
        database = MadeUpDatabase(place, self.operator.open_database(place)._connection)
        database.outbox = self.outbox
        return database


@asynccontextmanager
async def running(
    token: Path, *, lease: bool = False, dsn: str | None = None
) -> AsyncIterator[Running]:
    """Not started yet. ``dsn``: of a real outbox, instead of one that is made up."""
    kube = FakeKube()
    token.write_text("first", encoding="utf-8")  # noqa: ASYNC240 - a few bytes of a test
    async with kube.mock, kmock.Server(kube.mock):
        options = Options(namespaces=(NAMESPACE,), port=0, lease=lease)
        made = Running(kube, token, options, dsn=dsn)
        try:
            yield made
        finally:
            kube.tell(None)
            if made.alive:
                await made.stop()
