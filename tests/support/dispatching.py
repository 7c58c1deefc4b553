"""Dispatchers to run in a test: publishers that do as they are told, and events to wait for."""

from __future__ import annotations

import asyncio
import dataclasses
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from pgoutbox.database.conninfo import DatabaseOptions, conninfo
from pgoutbox.database.pool import Database
from pgoutbox.destinations.destination import Destination, RetryPolicy
from pgoutbox.dispatch.claim import claim
from pgoutbox.dispatch.drain import DrainTimes
from pgoutbox.dispatch.listen import Listener
from pgoutbox.dispatch.loop import Dispatcher, DispatchOptions
from pgoutbox.dispatch.reclaim import reclaim
from pgoutbox.dispatch.run import run
from pgoutbox.dispatch.wakeup import Wakeup
from pgoutbox.events import Finalized, Settled
from pgoutbox.outcome import Published
from pgoutbox.testing import make_message
from tests.support.roles import POOLER, as_worker, through_pooler

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Sequence

    import psycopg

    from pgoutbox.errors import PublishError
    from pgoutbox.events import Event
    from pgoutbox.message import ClaimedMessage
    from pgoutbox.outcome import Outcome, Transition
    from pgoutbox.publisher import BatchPublisher, Publisher

    Script = Callable[[ClaimedMessage], Awaitable[None]]
    BatchScript = Callable[[Sequence[ClaimedMessage]], Awaitable[Sequence[PublishError | None]]]

E = TypeVar("E")

PATIENCE = 10.0
"""Seconds after which a test that waits for something has failed."""

a_message = make_message

# Every retry is due at once, so that no test waits for a backoff.
AT_ONCE = RetryPolicy(base=0.0, cap=0.0, max_attempts=3)
SHORT_DRAIN = DrainTimes(grace=6.0, soft=2.0, cancel=0.5, release=0.5, flush=0.1, margin=0.5)
# For tests that end while a publisher hangs.
NO_PATIENCE = DrainTimes(grace=6.0, soft=0.0, cancel=0.5, release=0.5, flush=0.1, margin=0.5)


class Watched:
    """Something whose changes can be waited for."""

    def __init__(self) -> None:
        self._news = asyncio.Event()

    def changed(self) -> None:
        self._news.set()

    async def until(self, check: Callable[[], object]) -> None:
        """Return once ``check`` is true; it is asked again after every change."""
        async with asyncio.timeout(PATIENCE):
            while not check():
                self._news.clear()
                await self._news.wait()


class Events(Watched):
    """What a dispatcher emitted, in order."""

    def __init__(self) -> None:
        super().__init__()
        self.all: list[Event] = []

    def __call__(self, event: Event) -> None:
        self.all.append(event)
        self.changed()

    def of(self, kind: type[E]) -> list[E]:
        return [event for event in self.all if isinstance(event, kind)]

    def written(self) -> list[Settled]:
        """Every transition that the database took."""
        return [settled for event in self.of(Finalized) for settled in event.written]

    async def seen(self, kind: type[E], count: int = 1) -> list[E]:
        """The events of a kind, once there are so many."""
        await self.until(lambda: len(self.of(kind)) >= count)
        return self.of(kind)

    async def finished(self, count: int) -> list[Settled]:
        """The transitions that were written, once there are so many."""
        await self.until(lambda: len(self.written()) >= count)
        return self.written()


class Scripted(Watched):
    """A publisher that does as its script says, and keeps the books."""

    def __init__(self, script: Script | None = None) -> None:
        super().__init__()
        self._script = script
        self.begun: list[ClaimedMessage] = []
        self.taken: list[ClaimedMessage] = []
        self.running = 0
        self.most = 0
        self.closed = False

    async def publish(self, message: ClaimedMessage) -> None:
        self.begun.append(message)
        self.running += 1
        self.most = max(self.most, self.running)
        self.changed()
        try:
            # Others get a turn, as with any real destination.
            await asyncio.sleep(0)
            if self._script is not None:
                await self._script(message)
            self.taken.append(message)
        finally:
            self.running -= 1
            self.changed()

    async def close(self) -> None:
        self.closed = True


class ScriptedBatch:
    """As `Scripted`, for batches. Without a script it takes them all."""

    def __init__(self, script: BatchScript | None = None) -> None:
        self._script = script
        self.batches: list[list[ClaimedMessage]] = []

    async def publish_batch(
        self, messages: Sequence[ClaimedMessage]
    ) -> Sequence[PublishError | None]:
        self.batches.append(list(messages))
        await asyncio.sleep(0)
        if self._script is None:
            return [None] * len(messages)
        return await self._script(messages)

    async def close(self) -> None:
        pass


def raising(make: Callable[[], BaseException]) -> Script:
    """A script that fails each time with a fresh error."""

    async def script(_message: ClaimedMessage) -> None:
        raise make()

    return script


async def hang(_message: ClaimedMessage) -> None:
    """A script that waits until it is cancelled."""
    await asyncio.Event().wait()


def to(
    publisher: Publisher | BatchPublisher,
    name: str = "default",
    *,
    policy: RetryPolicy = AT_ONCE,
    **fields: Any,
) -> Destination:
    """A destination that retries at once and gives up at the third attempt."""
    return Destination(name=name, publisher=publisher, policy=policy, **fields)


@dataclass
class Running:
    """A dispatcher at work."""

    dispatcher: Dispatcher
    db: Database
    events: Events
    wakeup: Wakeup
    _ended: asyncio.Task[int]

    async def ended(self) -> int:
        """The exit code, once it has ended by itself."""
        async with asyncio.timeout(PATIENCE):
            return await asyncio.shield(self._ended)

    async def stop(self) -> int:
        """Drain; the exit code."""
        self.dispatcher.request_stop("the test is over")
        return await self.ended()


@asynccontextmanager
async def database(dsn: str, **fields: Any) -> AsyncIterator[Database]:
    """An open pool; ``fields`` are those of `DatabaseOptions`."""
    db = Database(DatabaseOptions(lambda: through_pooler(as_worker(dsn)), **POOLER | fields))
    await db.open()
    try:
        yield db
    finally:
        await db.close(1.0)


@asynccontextmanager
async def dispatching(
    dsn: str,
    *destinations: Destination,
    listen: bool = False,
    times: DrainTimes = SHORT_DRAIN,
    max_interval: float = 0.05,
    **options: Any,
) -> AsyncIterator[Running]:
    """A dispatcher that runs until the block ends.

    ``options`` are those of `DispatchOptions`, and of `DatabaseOptions` except for the DSN.
    """
    db_fields = {one.name for one in dataclasses.fields(DatabaseOptions)} & options.keys()
    chosen_fields = {name: options.pop(name) for name in db_fields}
    db_options = DatabaseOptions(lambda: through_pooler(as_worker(dsn)), **POOLER | chosen_fields)
    chosen: dict[str, Any] = {
        "owner": "a worker",
        "reclaim_interval": 0.05,
        "reap_interval": 0.1,
    } | options
    named = {destination.name: destination for destination in destinations}
    events = Events()
    wakeup = Wakeup(max_interval=max_interval, notify_possible=listen)
    db = Database(db_options)
    await db.open()
    dispatcher = Dispatcher(db, named, wakeup, DispatchOptions(**chosen), events)
    listener = None
    if listen:
        listener = Listener(
            lambda: conninfo(db_options, session_settings=False), wakeup, named, dispatcher.emit
        )
    task = asyncio.create_task(run(dispatcher, listener, times))
    task.add_done_callback(lambda _: events.changed())
    running = Running(dispatcher, db, events, wakeup, task)
    try:
        yield running
    finally:
        await running.stop()
        await db.close(1.0)


async def claimed(
    db: Database, *, owner: str = "a", count: int = 10, destination: str = "default"
) -> list[ClaimedMessage]:
    """What a worker of that name gets, for half a minute."""
    return await claim(db, owner=owner, lease=30.0, slots={destination: count})


async def reclaimed(
    db: Database,
    *,
    owner: str = "b",
    count: int = 10,
    limit: int = 3,
    suspect_allowed: bool = True,
) -> list[ClaimedMessage]:
    """What a worker of that name gets of the expired."""
    return await reclaim(
        db,
        owner=owner,
        lease=30.0,
        slots={"default": (count, limit)},
        suspect_allowed=suspect_allowed,
    )


def settled(
    message: ClaimedMessage, transition: Transition, outcome: Outcome | None = None
) -> Settled:
    """A decision that waits to be written."""
    return Settled(message, outcome or Published(), transition, 0.0, 0.0)


def expire(conn: psycopg.Connection[Any]) -> int:
    """Let every lease end a second ago; how many there were."""
    return conn.execute(
        "UPDATE outbox SET lease_until = now() - interval '1 second' WHERE status = 'processing'"
    ).rowcount


def row(conn: psycopg.Connection[Any], number: int) -> dict[str, Any]:
    """The row as it stands."""
    found = conn.execute("SELECT to_jsonb(o) FROM outbox o WHERE id = %s", [number]).fetchone()
    assert found is not None
    columns: dict[str, Any] = found[0]
    return columns


def statuses(conn: psycopg.Connection[Any]) -> dict[str, int]:
    """How many rows stand where."""
    return dict(conn.execute("SELECT status, count(*) FROM outbox GROUP BY status").fetchall())


async def until_true(conn: psycopg.Connection[Any], question: bytes, *values: object) -> None:
    """Return once the database answers the question with true."""
    await eventually(lambda: conn.execute(question, values or None).fetchone() == (True,))


async def eventually(check: Callable[[], object]) -> None:
    """Return once ``check`` is true; for what cannot ring a bell."""
    async with asyncio.timeout(PATIENCE):
        while True:
            if check():
                return
            await asyncio.sleep(0.002)
