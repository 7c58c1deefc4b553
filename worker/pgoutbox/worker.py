"""The composition root: settings become a worker, a worker runs until it is told to stop."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import time
import uuid
from contextlib import suppress
from datetime import timedelta
from typing import TYPE_CHECKING, Protocol, TypeVar

import psycopg

from pgoutbox.database.conninfo import DatabaseOptions, conninfo
from pgoutbox.database.migrate import verify
from pgoutbox.database.pool import DATABASE_ERRORS, Database
from pgoutbox.destinations.breaker import Breaker, BreakerLimits
from pgoutbox.destinations.destination import Destination, RetryPolicy
from pgoutbox.destinations.rate import Rate
from pgoutbox.destinations.registry import open_publisher
from pgoutbox.dispatch.backoff import Backoff
from pgoutbox.dispatch.drain import Deadline, DrainTimes
from pgoutbox.dispatch.listen import Listener
from pgoutbox.dispatch.loop import Dispatcher, DispatchOptions
from pgoutbox.dispatch.run import run
from pgoutbox.dispatch.wakeup import Wakeup
from pgoutbox.errors import MigrationError
from pgoutbox.events import DatabaseFailed, DrainStarted
from pgoutbox.signals import Signals
from pgoutbox.telemetry.logs import Logs
from pgoutbox.telemetry.metrics import Metrics
from pgoutbox.telemetry.probes import Probes
from pgoutbox.telemetry.tracing.setup import open_tracing

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Mapping, Sequence

    from pgoutbox.events import Event, Observer
    from pgoutbox.publisher import BatchPublisher, Publisher, PublisherOptions
    from pgoutbox.settings.destination import Destination as DestinationSettings
    from pgoutbox.settings.model import Settings

T = TypeVar("T")

GC_THRESHOLD = 20_000
"""Allocations between two looks of the garbage collector; Python's own 700 cost much of the CPU."""


class Open(Protocol):
    """How a URL becomes a publisher."""

    async def __call__(
        self, url: str, /, *, options: PublisherOptions
    ) -> Publisher | BatchPublisher:
        """As `pgoutbox.destinations.registry.open_publisher`."""
        ...


class Worker:
    """One process of the fleet."""

    def __init__(
        self,
        settings: Settings,
        observers: Sequence[Observer] = (),
        open_destination: Open = open_publisher,
    ) -> None:
        self.settings = settings
        self._open_destination = open_destination
        self.metrics = Metrics(
            destinations=tuple(settings.destinations), slots=settings.max_in_flight
        )
        self.probes = Probes(port=settings.http.port, registry=self.metrics.registry)
        self._tracing = open_tracing(
            os.environ,
            destinations={
                name: one.url.get_secret_value() for name, one in settings.destinations.items()
            },
            owner=settings.owner,
            slots=settings.max_in_flight,
            parent=settings.tracing.parent,
        )
        self.metrics.watch_spans(self._tracing.counts)
        self._observers: tuple[Observer, ...] = (self.metrics, Logs(), self._tracing, *observers)
        self._signals = Signals(settings.drain.grace)

    async def run(self) -> int:
        """Work until a signal, then drain. Returns the exit code.

        Raises `pgoutbox.errors.PgOutboxError` for what no waiting would mend: a port that is
        taken, a destination that cannot be opened.
        """
        self._signals.install()
        await self.probes.start()
        self._tracing.start()
        try:
            return await self._work()
        finally:
            deadline = Deadline(drain_times(self.settings), self._began())
            await self._tracing.close(deadline.within(deadline.times.flush))
            await self.probes.stop()

    async def _work(self) -> int:
        started = await self._unless_stopped(self._start())
        if started is None:
            return 0
        db, destinations = started
        dispatcher, listener = self._assemble(db, destinations)
        self.metrics.watch_slots(lambda: len(dispatcher.in_flight))
        self.metrics.watch_pool(db.stats)
        self.probes.readiness.ready = True
        stopper = asyncio.create_task(self._stop_on_signal(dispatcher), name="signals")
        try:
            return await run(
                dispatcher, listener, drain_times(self.settings), stop_began=self._began
            )
        finally:
            stopper.cancel()

    def _emit(self, event: Event) -> None:
        if isinstance(event, DrainStarted):
            self.probes.readiness.draining = True
        for observer in self._observers:
            # An observer is not part of the walk: what it trips over must not stop a message.
            try:
                observer.on_event(event)
            except Exception:
                logging.getLogger(__name__).exception("an observer failed: %r", observer)

    def _began(self) -> float:
        return self._signals.began or time.monotonic()

    async def _stop_on_signal(self, dispatcher: Dispatcher) -> None:
        await self._signals.received.wait()
        dispatcher.request_stop(self._signals.name)

    async def _unless_stopped(self, start: Coroutine[None, None, T]) -> T | None:
        """The result, or None when a signal comes first: nothing is held yet."""
        starting = asyncio.ensure_future(start)
        stopped = asyncio.ensure_future(self._signals.received.wait())
        await asyncio.wait({starting, stopped}, return_when=asyncio.FIRST_COMPLETED)
        stopped.cancel()
        if starting.done():
            return starting.result()
        starting.cancel()
        return None

    async def _start(self) -> tuple[Database, dict[str, Destination]]:
        db = await self._connect()
        return db, await self._open_all(self.settings.destinations)

    async def _open_all(self, chosen: Mapping[str, DestinationSettings]) -> dict[str, Destination]:
        """All of them, or none: what was opened before one that cannot be is closed again."""
        opened: dict[str, Destination] = {}
        try:
            for name, settings in chosen.items():
                opened[name] = await self._open(name, settings)
        except BaseException:
            for destination in opened.values():
                await destination.publisher.close()
            raise
        return opened

    async def _connect(self) -> Database:
        """A database whose schema fits, waited for as long as it takes."""
        options = database_options(self.settings)
        backoff = Backoff()
        while True:
            db = Database(options)
            try:
                await db.probe(self._verify)
                await db.open()
            except MigrationError as error:
                self._emit(DatabaseFailed.because("check the schema", error))
            except DATABASE_ERRORS as error:
                self._emit(DatabaseFailed.because("connect", error))
            else:
                return db
            await backoff.pause()

    async def _verify(self, conn: psycopg.AsyncConnection[object]) -> None:
        await verify(conn, schema=self.settings.database.schema_name)

    async def _open(self, name: str, chosen: DestinationSettings) -> Destination:
        publisher = await self._open_destination(
            chosen.url.get_secret_value(), options=chosen.publisher_options(name)
        )
        return Destination(
            name=name,
            publisher=publisher,
            concurrency=chosen.concurrency,
            publish_timeout=chosen.publish_timeout,
            rate=None if chosen.rate is None else Rate(chosen.rate),
            breaker=Breaker(
                BreakerLimits(
                    failures=chosen.breaker.failures,
                    pause=chosen.breaker.pause,
                    max_pause=chosen.breaker.max_pause,
                )
            ),
            policy=RetryPolicy(
                base=chosen.retry.base,
                cap=chosen.retry.cap,
                max_attempts=chosen.max_attempts,
                defer_max_age=chosen.defer_max_age,
                dead_head=chosen.dead_head,
            ),
        )

    def _assemble(
        self, db: Database, destinations: dict[str, Destination]
    ) -> tuple[Dispatcher, Listener | None]:
        settings = self.settings
        listening = settings.wakeup.mode != "poll"
        wakeup = Wakeup(max_interval=settings.wakeup.max_interval, notify_possible=listening)
        dispatcher = Dispatcher(db, destinations, wakeup, dispatch_options(settings), self._emit)
        if not listening:
            return dispatcher, None
        listen_options = database_options(settings, read=settings.read_listen_dsn)
        listener = Listener(
            # It needs none of them, and may itself lead to a pooler that refuses them.
            lambda: conninfo(listen_options, session_settings=False),
            wakeup,
            destinations,
            dispatcher.emit,
            insist=settings.wakeup.mode == "notify",
        )
        return dispatcher, listener


def dispatch_options(settings: Settings) -> DispatchOptions:
    """The loop's part of the settings."""
    return DispatchOptions(
        owner=settings.owner,
        incarnation=str(uuid.uuid4()),
        max_in_flight=settings.max_in_flight,
        lease=settings.lease.duration,
        renew=settings.lease.renew,
        # Short beside the lease that a dead worker's messages have waited for already.
        reclaim_interval=min(5.0, settings.lease.duration / 6),
        sweep_interval=settings.wakeup.max_interval,
        retention=timedelta(days=settings.retention.days),
        retention_mode=settings.retention.mode,
        retry_unclassified=settings.on_unclassified == "retry",
    )


def drain_times(settings: Settings) -> DrainTimes:
    """The drain's part of the settings."""
    return DrainTimes(grace=settings.drain.grace, soft=settings.drain.soft)


def database_options(settings: Settings, read: Callable[[], str] | None = None) -> DatabaseOptions:
    """The connections' part of the settings; ``read`` returns another DSN than the main one."""
    source = read or settings.read_dsn

    def dsn() -> str:
        try:
            return source()
        except (OSError, ValueError) as error:
            raise psycopg.OperationalError(f"the DSN cannot be read: {error}") from error

    return DatabaseOptions(
        dsn=dsn,
        schema=settings.database.schema_name,
        pool_max=settings.database.pool_max,
        statement_timeout=settings.database.statement_timeout,
        pooler=settings.database.pooler,
        application_name=f"pgoutbox {settings.owner}"[:63],
    )


def run_process(worker: Callable[[], Coroutine[None, None, int]]) -> int:
    """Run it on a fresh event loop and return its exit code.

    Unlike `asyncio.run` it does not wait for tasks that ignore their cancellation.
    """
    # What was imported stays; and a message is freed by its last reference, so the collector has
    # little to find and need not look after every few hundred messages.
    gc.freeze()
    gc.set_threshold(GC_THRESHOLD, 50, 100)
    loop = _new_event_loop()
    asyncio.set_event_loop(loop)
    code = loop.run_until_complete(worker())
    if not asyncio.all_tasks(loop):
        with suppress(RuntimeError):
            loop.close()
    return code


def _new_event_loop() -> asyncio.AbstractEventLoop:
    try:
        import uvloop  # noqa: PLC0415 - absent on some platforms
    except ImportError:
        return asyncio.new_event_loop()
    loop: asyncio.AbstractEventLoop = uvloop.new_event_loop()
    return loop
