"""One task for each object, one for each outbox. Objects come and go as the cluster tells."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, TypeAlias, overload

import structlog

from pgoutbox_operator.connections import place_of
from pgoutbox_operator.database import Database
from pgoutbox_operator.reconcile import Reconciler
from pgoutbox_operator.wishes import policy_of

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterable
    from typing import Any

    from pgoutbox_operator.cluster import Cluster, Object
    from pgoutbox_operator.connections import Place
    from pgoutbox_operator.gate import Gate
    from pgoutbox_operator.notices import Notices
    from pgoutbox_operator.permissions import Permissions

Key: TypeAlias = tuple[str, str]
"""Namespace and name."""
WAITING_SECONDS = 0.5
"""How often one who does not lead looks whether it does. That asks nobody."""
SLOWEST = 15.0


class Job:
    """An object that is looked after."""

    def __init__(self, reconciler: Reconciler) -> None:
        self.reconciler = reconciler
        self.bell = asyncio.Event()
        self.database: Database | None = None
        self.task: asyncio.Task[None] | None = None

    @property
    def pace(self) -> float:
        """Seconds until the next decision."""
        spec, last = self.reconciler.spec, self.reconciler.last
        if spec is None:
            return SLOWEST
        replicas = None if last is None else last.replicas
        return policy_of(spec).next_tick(1 if replicas is None else replicas)


class Supervisor:
    """What all visits share, and who makes them."""

    def __init__(
        self,
        *,
        cluster: Cluster,
        permissions: Permissions,
        notices: Notices,
        gate: Gate,
        open_database: Callable[[Place], Database],
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self.cluster = cluster
        self.permissions = permissions
        self.notices = notices
        self.gate = gate
        self._open_database = open_database
        self._now = now
        self._jobs: dict[Key, Job] = {}
        self._databases: dict[Place, tuple[Database, asyncio.Task[None]]] = {}
        self._ending: set[asyncio.Task[None]] = set()
        self._log = structlog.get_logger()

    @property
    def reconcilers(self) -> list[Reconciler]:
        """Of all objects."""
        return [job.reconciler for job in self._jobs.values()]

    @property
    def databases(self) -> list[Database]:
        """Those that were looked at, if this process leads: another one's are not ours to show."""
        if not self.gate.held:
            return []
        return [database for database, _ in self._databases.values() if database.looks]

    def others(self, body: Object) -> Iterable[Object]:
        """Every other OutboxScaler."""
        uid = body["metadata"]["uid"]
        bodies = [job.reconciler.body for job in self._jobs.values()]
        return [each for each in bodies if each["metadata"]["uid"] != uid]

    def saw(self, kind: str | None, body: Object) -> None:
        """An event of the watch: ``ADDED``, ``MODIFIED``, ``DELETED``; None of the first list."""
        of = body["metadata"]
        key = (of["namespace"], of["name"])
        job = self._jobs.get(key)
        same = job is not None and job.reconciler.body["metadata"]["uid"] == of["uid"]
        if kind == "DELETED" or of.get("deletionTimestamp"):
            if same:
                self._drop(key)
        elif job is not None and same:
            self._renew(job, body)
        else:
            if job is not None:
                self._drop(key)
            self._begin(key, body)

    async def stop(self) -> None:
        """End all tasks and connections."""
        for key in list(self._jobs):
            self._drop(key)
        await asyncio.gather(*self._ending, return_exceptions=True)

    def _renew(self, job: Job, body: Object) -> None:
        # What we write into the status comes back, and is no reason to look again.
        before = job.reconciler.body["metadata"].get("generation")
        job.reconciler.body = body
        if body["metadata"].get("generation") != before:
            job.bell.set()

    def _begin(self, key: Key, body: Object) -> None:
        job = Job(Reconciler(body, self, now=self._now))
        self._jobs[key] = job
        job.task = self._spawn(self._look_after(key, job), f"scaler {key[0]}/{key[1]}")

    def _drop(self, key: Key) -> None:
        job = self._jobs.pop(key)
        if job.task is not None and job.task is not asyncio.current_task():
            job.task.cancel()
        self._leave(job)

    async def _look_after(self, key: Key, job: Job) -> None:
        while not job.reconciler.gone:
            job.bell.clear()
            try:
                await self._visit(job)
            except Exception:  # noqa: BLE001 - the task must not end
                # A bug with one object, which the next visit may do without.
                self._log.exception("visit failed", namespace=key[0], name=key[1])
            # Rung for after each look. Should none end, the object is visited all the same.
            patience = 2 * job.pace if self.gate.held else WAITING_SECONDS
            with suppress(TimeoutError):
                async with asyncio.timeout(patience):
                    await job.bell.wait()
        if self._jobs.get(key) is job:
            self._drop(key)

    async def _visit(self, job: Job) -> None:
        self._join(job)
        await job.reconciler.visit(job.database)
        if job.database is not None:
            job.database.subscribe(job.bell, job.pace)

    def _join(self, job: Job) -> None:
        """The database that the spec names now."""
        spec = job.reconciler.spec
        namespace = job.reconciler.body["metadata"]["namespace"]
        place = None if spec is None else place_of(namespace, spec)
        if job.database is not None and job.database.place != place:
            self._leave(job)
        if job.database is None and place is not None:
            job.database = self._database(place)
            job.database.subscribe(job.bell, job.pace)

    def _leave(self, job: Job) -> None:
        database, job.database = job.database, None
        if database is None:
            return
        database.unsubscribe(job.bell)
        if not database.subscribers:
            _, task = self._databases.pop(database.place)
            task.cancel()

    def _database(self, place: Place) -> Database:
        if place not in self._databases:
            database = self._open_database(place)
            task = self._spawn(self._watch(database), f"database {place}")
            self._databases[place] = database, task
        return self._databases[place][0]

    async def _watch(self, database: Database) -> None:
        try:
            while True:
                began = self._now()
                if not self.gate.held:
                    await database.close()
                    await asyncio.sleep(WAITING_SECONDS)
                    continue
                try:
                    await database.tick()
                except Exception:  # noqa: BLE001 - as above
                    # A bug; all who want to know of it are visited all the same, and say so.
                    self._log.exception("look failed", database=str(database.place))
                await database.pause(began)
        finally:
            await database.close()

    def _spawn(self, work: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]:
        task = asyncio.create_task(work, name=name)
        self._ending.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._ending.discard(task)
        if not task.cancelled() and task.exception() is not None:
            self._log.error("task ended", task=task.get_name(), exc_info=task.exception())


class Led(Sequence[Database]):
    """The databases that this process shows, at any time."""

    def __init__(self, supervisor: Supervisor) -> None:
        self._supervisor = supervisor

    def __len__(self) -> int:
        return len(self._supervisor.databases)

    @overload
    def __getitem__(self, index: int) -> Database: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Database]: ...
    def __getitem__(self, index: int | slice) -> Database | Sequence[Database]:
        return self._supervisor.databases[index]
