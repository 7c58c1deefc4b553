"""One drill: producers, workers in threads and in processes, and somebody who kills them."""

from __future__ import annotations

import asyncio
import itertools
import os
import random
import signal
import threading
import time
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import psycopg

import pgoutbox
from pgoutbox.destinations.destination import Destination, RetryPolicy
from tests.support.dispatching import dispatching
from tests.support.order_oracle import History, Pause, Verdict, judge
from tests.support.order_publisher import Manner, install, read_journals
from tests.support.order_traffic import (
    BOOKS,
    DESTINATIONS,
    Mix,
    Producer,
    read_changes,
    read_truth,
)
from tests.support.workers import WorkerProcess

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pgoutbox.dispatch.finalize_statements import Mode

LEASE = 2.0
RENEW = 0.6
MAX_ATTEMPTS = 6
CONCURRENCY = 16
# Whoever is owed anything and has no dead head before it.
OWED = b"""
SELECT count(*) FROM outbox o
 WHERE o.pending_since IS NOT NULL
   AND NOT EXISTS (SELECT FROM outbox d
                    WHERE d.status = 'dead' AND d.done_at IS NULL
                      AND d.destination = o.destination AND d.ordering_key = o.ordering_key
                      AND d.id < o.id)
"""
POLICIES = {
    name: RetryPolicy(
        base=0.01,
        cap=0.1,
        max_attempts=MAX_ATTEMPTS,
        dead_head="skip" if name == "skipping" else "block",
    )
    for name in DESTINATIONS
}
SETTINGS = {
    "LEASE__DURATION": str(LEASE),
    "LEASE__RENEW": str(RENEW),
    "WAKEUP__MAX_INTERVAL": "0.2",
} | {
    f"DESTINATIONS__{name.upper()}__{setting}": value
    for name in DESTINATIONS
    for setting, value in {
        "CONCURRENCY": str(CONCURRENCY),
        "PUBLISH_TIMEOUT": "1",
        "MAX_ATTEMPTS": str(MAX_ATTEMPTS),
        "RETRY__BASE": "0.01",
        "RETRY__CAP": "0.1",
        "DEAD_HEAD": POLICIES[name].dead_head,
    }.items()
}


@dataclass(frozen=True, slots=True)
class Plan:
    """What a drill is made of. The seed decides what is enqueued, and what fails."""

    seed: int
    messages: int = 20_000
    keys: int = 60
    producers: int = 6
    threads: int = 2
    processes: int = 2
    disturbances: int = 9
    """Kills, terminations and stops of processes."""
    faults: float = 1.0
    retention: Mode = "keep"
    patience: float = 60.0
    """Seconds after the last commit until everything must be settled."""

    def smaller(self) -> Iterator[Self]:
        """Plans with less in them, the boldest first."""
        if self.disturbances:
            yield replace(self, disturbances=0)
        if self.faults:
            yield replace(self, faults=0.0)
        if self.messages > 200:
            yield replace(self, messages=self.messages // 4)
        if self.keys > 1:
            yield replace(self, keys=max(self.keys // 4, 1))
        if self.processes and not self.disturbances:
            yield replace(self, processes=0)


class ThreadWorker(threading.Thread):
    """A dispatcher with an event loop of its own, so that a stall stops no other."""

    def __init__(self, dsn: str, manner: Manner, name: str, retention: Mode) -> None:
        super().__init__(name=name, daemon=True)
        self._dsn = dsn
        self._manner = manner
        self._retention = retention
        self._loop: asyncio.AbstractEventLoop | None = None
        self._over = asyncio.Event()
        self.exit_code: int | None = None

    def run(self) -> None:
        """Dispatch until `stop`."""
        asyncio.run(self._dispatch())

    def stop(self) -> int | None:
        """Drain; the exit code, None if it had ended by an error."""
        if self._loop is not None and self.is_alive():
            self._loop.call_soon_threadsafe(self._over.set)
        self.join()
        return self.exit_code

    async def _dispatch(self) -> None:
        self._loop = asyncio.get_running_loop()
        destinations = [
            Destination(
                name=name,
                publisher=self._manner.open(f"{self.name} 0", name),
                concurrency=CONCURRENCY,
                publish_timeout=1.0,
                policy=policy,
            )
            for name, policy in POLICIES.items()
        ]
        async with dispatching(
            self._dsn,
            *destinations,
            listen=True,
            max_interval=0.2,
            owner=self.name,
            lease=LEASE,
            renew=RENEW,
            reclaim_interval=LEASE / 6,
            retention_mode=self._retention,
        ) as running:
            await self._over.wait()
            self.exit_code = await running.stop()


class Fleet:
    """The processes, and what is done to them."""

    def __init__(self, dsn: str, manner: Manner, plan: Plan) -> None:
        self._dsn = dsn
        self._manner = manner
        self._path = install(manner.folder)
        self._random = random.Random(f"{plan.seed} fleet")
        self._settings = SETTINGS | {"RETENTION__MODE": plan.retention}
        for name in DESTINATIONS[1:]:
            self._settings[f"DESTINATIONS__{name.upper()}__URL"] = manner.url()
        self._numbers = itertools.count(1)
        self._stack = ExitStack()
        self._all: list[WorkerProcess] = []
        self._names: dict[int, str] = {}
        self.deaths: dict[str, float] = {}
        self.pauses: list[Pause] = []
        self.problems: list[str] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def start(self) -> None:
        """One process more."""
        name = f"process {next(self._numbers)}"
        worker = WorkerProcess(self._dsn, self._manner.url(), OWNER=name, **self._settings)
        # The package that is tested here, from wherever it was imported.
        worker.with_path(self._path, Path(pgoutbox.__file__).parents[1])
        self._stack.enter_context(worker).start()
        self._names[worker.pid] = name
        self._all.append(worker)

    def disturb(self) -> None:
        """Kill, terminate or stop one of them, whichever the dice say."""
        worker = self._random.choice(self._all)
        worker.wait_for("worker started")
        match self._random.choice(("kill", "kill", "terminate", "stop", "stop")):
            case "kill":
                self._all.remove(worker)
                worker.signal(signal.SIGKILL).exit()
                self.deaths[self._names[worker.pid]] = time.time()
                self.start()
            case "terminate":
                self._all.remove(worker)
                self.start()
                self._ended(worker)
            case _:
                since = time.time()
                os.kill(worker.pid, signal.SIGSTOP)
                time.sleep(LEASE * self._random.uniform(0.5, 1.5))
                life = f"{self._names[worker.pid]} {worker.pid}"
                self.pauses.append(Pause(life, since, time.time()))
                os.kill(worker.pid, signal.SIGCONT)

    def stop(self) -> None:
        """Terminate all of them."""
        for worker in self._all:
            worker.wait_for("worker started")
            worker.signal()
        for worker in self._all:
            self._ended(worker)

    def _ended(self, worker: WorkerProcess) -> None:
        name = self._names[worker.pid]
        code = worker.stop().code
        self.deaths[name] = time.time()
        bugs = worker.events("publisher failed")
        if code or bugs:
            self.problems.append(f"{name} ended with code {code}:\n{bugs}\n{worker}")


def drill(plan: Plan, dsn: str, folder: Path) -> Verdict:
    """Run the plan on an empty outbox, and judge what happened."""
    manner = Manner(folder, plan.seed, plan.faults, stall=LEASE * 1.3)
    mix = Mix(plan.seed, plan.messages, plan.keys, plan.producers)
    with psycopg.connect(dsn, autocommit=True) as conn:
        conn.execute(BOOKS)
        threads = [
            ThreadWorker(dsn, manner, f"thread {n + 1}", plan.retention)
            for n in range(plan.threads)
        ]
        producers = [Producer(dsn, mix, number) for number in range(plan.producers)]
        with Fleet(dsn, manner, plan) as fleet:
            for producer in producers:
                producer.start()
            # Lanes that have a backlog are claimed in long runs, the others in short ones.
            _until_committed(conn, plan.messages // 3, producers)
            for _ in range(plan.processes):
                fleet.start()
            for thread in threads:
                thread.start()
            _until_settled(conn, plan, producers, fleet)
            fleet.stop()
            codes = {thread.name: thread.stop() for thread in threads}
        windows = {k: v for producer in producers for k, v in producer.windows.items()}
        history = History(
            enqueued=list(read_truth(conn, windows)),
            publishes=read_journals(folder, fleet.deaths),
            changes=list(read_changes(conn)),
            pauses=fleet.pauses,
        )
    verdict = judge(history)
    verdict.problems += fleet.problems
    verdict.problems += [f"{name} ended with {code}" for name, code in codes.items() if code != 0]
    verdict.problems += [f"{p.name}: {p.error!r}" for p in producers if p.error is not None]
    return verdict


def _until_committed(conn: psycopg.Connection[Any], count: int, producers: list[Producer]) -> None:
    while any(producer.is_alive() for producer in producers):
        if conn.execute("SELECT count(*) >= %s FROM drill_truth", [count]).fetchall() == [(True,)]:
            return
        time.sleep(0.1)


def _until_settled(
    conn: psycopg.Connection[Any], plan: Plan, producers: list[Producer], fleet: Fleet
) -> None:
    dice = random.Random(f"{plan.seed} pauses")
    left = plan.disturbances if plan.processes else 0
    deadline = float("inf")
    while time.monotonic() < deadline:
        if left:
            left -= 1
            time.sleep(dice.uniform(0.2, 1.5))
            fleet.disturb()
            continue
        if any(producer.is_alive() for producer in producers):
            time.sleep(0.1)
            continue
        deadline = min(deadline, time.monotonic() + plan.patience)
        if conn.execute(OWED).fetchall() == [(0,)]:
            return
        time.sleep(0.1)


def shrunk(
    plan: Plan, run: Callable[[Plan], Verdict], verdict: Verdict, seconds: float = 120.0
) -> tuple[Plan, Verdict]:
    """The smallest plan that was seen to fail within the time, and how it failed."""
    deadline = time.monotonic() + seconds
    candidates = plan.smaller()
    while time.monotonic() < deadline and (smaller := next(candidates, None)) is not None:
        found = run(smaller)
        if found.problems:
            plan, verdict, candidates = smaller, found, smaller.smaller()
    return plan, verdict
