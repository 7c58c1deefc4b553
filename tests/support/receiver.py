"""An HTTP endpoint in the test's own process that takes notes, and its time."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import Counter
from typing import TYPE_CHECKING, NamedTuple, Self

from aiohttp import web

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import psycopg

PATIENCE = 30.0


class Delivery(NamedTuple):
    """One request that has arrived."""

    message_id: str
    attempt: int
    at: float
    """When, on the monotonic clock."""


class Receiver:
    """Answers every request with ``status`` after ``seconds``, in a thread of its own."""

    def __init__(self, *, status: int = 204, seconds: float = 0.0, host: str = "127.0.0.1") -> None:
        """``host`` is an address of this machine that the worker can reach."""
        self._host = host
        self.status = status
        self.seconds = seconds
        self.deliveries: list[Delivery] = []
        """What has arrived, in order."""
        self.answered: Counter[str] = Counter()
        """Message ids by how often they were taken, which the worker heard of or not."""
        self._changed = threading.Condition()
        self._loop = asyncio.new_event_loop()
        self._open = asyncio.Event()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._runner: web.AppRunner | None = None
        self.url = ""

    def __enter__(self) -> Self:
        self._thread.start()
        self._open.set()
        asyncio.run_coroutine_threadsafe(self._start(), self._loop).result(10)
        return self

    def __exit__(self, *_: object) -> None:
        asyncio.run_coroutine_threadsafe(self._stop(), self._loop).result(10)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def hold(self) -> None:
        """Answer nothing until `let_go`."""
        self._loop.call_soon_threadsafe(self._open.clear)

    def let_go(self) -> None:
        """Answer everything that was held, and go on."""
        self._loop.call_soon_threadsafe(self._open.set)

    def until(self, condition: Callable[[Sequence[Delivery]], bool], why: str) -> None:
        """Return once the deliveries satisfy it; it is asked again at each arrival."""
        with self._changed:
            if not self._changed.wait_for(lambda: condition(self.deliveries), PATIENCE):
                raise AssertionError(f"{why}: not after {len(self.deliveries)} deliveries")

    def until_arrived(self, count: int) -> None:
        """Return once so many requests have arrived, answered or not."""
        self.until(lambda deliveries: len(deliveries) >= count, f"{count} arrivals")

    @property
    def arrivals(self) -> Counter[str]:
        """How often each message id has arrived."""
        return Counter(delivery.message_id for delivery in self.deliveries)

    async def _start(self) -> None:
        app = web.Application()
        app.router.add_post("/", self._take)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
        await self._runner.setup()
        site = web.TCPSite(self._runner, self._host, 0)
        await site.start()
        self.url = f"http://{self._host}:{self._runner.addresses[0][1]}/"

    async def _stop(self) -> None:
        assert self._runner is not None
        await self._runner.cleanup()

    async def _take(self, request: web.Request) -> web.Response:
        message_id = request.headers["webhook-id"]
        attempt = int(request.headers["outbox-attempt"])
        with self._changed:
            self.deliveries.append(Delivery(message_id, attempt, time.monotonic()))
            self._changed.notify_all()
        if self.seconds:
            await asyncio.sleep(self.seconds)
        await self._open.wait()
        if self.status < 300:
            self.answered[message_id] += 1
        return web.Response(status=self.status)


def message_ids(conn: psycopg.Connection[tuple[object, ...]]) -> set[str]:
    """The ids of all messages, as a consumer sees them."""
    return {str(row[0]) for row in conn.execute("SELECT message_id FROM outbox")}
