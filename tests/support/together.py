"""The whole operator and its API server in one `VirtualLoop`, with a door between them."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import aiohttp
import kmock

from pgoutbox_operator.run import Operator, Options
from pgoutbox_operator.session import Server, bearer
from tests.support.door import Door
from tests.support.kube import NAMESPACE, FakeKube, scaler
from tests.support.operating import MadeUpDatabase
from tests.support.virtual_time import run_virtually
from tests.support.visiting import FakeOutbox

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable
    from pathlib import Path

    from pgoutbox_operator.connections import Place
    from pgoutbox_operator.database import Database

STEP = 1.0
READY = ("True", "Reconciled")


def busy(name: str = "orders", *, uid: str = "1", **changes: Any) -> dict[str, Any]:
    """A scaler that scales to 7 when its outbox has a backlog."""
    return scaler(name, uid=uid, seedRatePerReplica="50", **changes)


class Together:
    """An operator that works."""

    def __init__(self, kube: FakeKube, door: Door, token: Path, options: Options) -> None:
        self.kube = kube
        self.door = door
        self.outbox = FakeOutbox()
        server = Server(f"http://127.0.0.1:{door.port}", bearer(token), None)
        self.operator = Operator(options, server)
        self.operator.supervisor._open_database = self._open_database
        self._stop = asyncio.Event()
        self._work: asyncio.Task[None] | None = None

    @property
    def names(self) -> list[str]:
        """Of the objects that are looked after."""
        bodies = [each.body["metadata"]["name"] for each in self.operator.supervisor.reconcilers]
        return sorted(bodies)

    async def pass_by(self, seconds: float) -> None:
        """Let so many seconds pass, and insist that it lives."""
        assert self._work is not None
        done, _ = await asyncio.wait({self._work}, timeout=seconds)
        for task in done:
            await task
        assert not done

    async def until(self, holds: Callable[[], object], *, within: float) -> float:
        """Seconds until it holds, to `STEP`."""
        began = asyncio.get_running_loop().time()
        while not holds():
            await self.pass_by(STEP)
            passed = asyncio.get_running_loop().time() - began
            assert passed <= within, f"not within {within:g} seconds"
        return asyncio.get_running_loop().time() - began

    async def probe(self, path: str) -> int:
        """The status of an answer that comes within a second."""
        url = f"http://127.0.0.1:{self.operator.probes.port}{path}"
        timeout = aiohttp.ClientTimeout(total=1)
        async with aiohttp.ClientSession(timeout=timeout) as session, session.get(url) as answer:
            return answer.status

    def start(self) -> None:
        self._work = asyncio.create_task(self.operator.run(self._stop), name="operator")

    async def stop(self) -> None:
        self._stop.set()
        if self._work is not None:
            await self._work

    def _open_database(self, place: Place) -> Database:
        connection = self.operator.open_database(place)._connection
        clock = asyncio.get_running_loop().time
        database = MadeUpDatabase(place, connection, clock=clock)
        database.outbox = self.outbox
        return database


@asynccontextmanager
async def together(token: Path, *, lease: bool = False) -> AsyncIterator[Together]:
    """Started, with nothing to look after yet."""
    kube = FakeKube()
    token.write_text("first", encoding="utf-8")  # noqa: ASYNC240 - a few bytes of a test
    async with (
        kube.mock,
        kmock.Server(kube.mock) as server,
        Door((server.host, server.port)) as door,
    ):
        made = Together(kube, door, token, Options(namespaces=(NAMESPACE,), port=0, lease=lease))
        made.start()
        try:
            yield made
        finally:
            kube.tell(None)
            await made.stop()


def virtually(
    token: Path, scenario: Callable[[Together], Awaitable[None]], *, lease: bool = False
) -> None:
    """Run it in a loop of its own, and see to it that nothing is left in there."""

    async def main() -> None:
        async with together(token, lease=lease) as made:
            await scenario(made)

    run_virtually(main())
