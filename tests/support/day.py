"""A day of the whole operator, with everything going wrong that can: as a process of its own.

    python -m tests.support.day --hours 24 --seed 1 --dsn ... --dsn ...

Prints what was counted, as JSON. A process of its own, since what is measured is what a process
holds: memory, descriptors, tasks. The loop's time is virtual, PostgreSQL and all sockets are real.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import logging
import math
import os
import random
import sys
import time
from collections import Counter
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import structlog

from pgoutbox_operator.run import Operator, Options
from pgoutbox_operator.session import Server, bearer
from tests.support import day_faults
from tests.support.day_database import DayDatabase, day_database
from tests.support.day_world import Fleet, bursts, steady, wave
from tests.support.door import Door
from tests.support.kube import NAMESPACE, scaler
from tests.support.many_scalers import Deployment, ManyScalers
from tests.support.virtual_time import VirtualLoop, run_virtually

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tests.support.day_faults import Fault

STEP = 10.0
TICK, ASLEEP = 15.0, 5.0
"""Seconds between looks, with workers and without."""
CALM = 480.0
"""Seconds in which no fault begins, before it is looked at what is left. One lasts up to 365."""
BLIND = 65.0
"""Seconds after which nothing that was known before may still be acted upon: it may be 45 old when
it is decided by, and then two requests may take 10 each."""
STOLEN = 30.0
"""Seconds after which whoever has lost the lease may not act any more."""
AFTERWARDS = 60.0
EVERY = {"api": 240.0, "database": 240.0, "cluster": 600.0}
"""Seconds between the end of a fault and the next, on average."""
MAXIMUM = 10


@dataclass
class Held:
    """What the process holds at some hour."""

    hour: float
    rss_mb: float
    objects: int
    tasks: int
    descriptors: int
    connections: list[int]
    looks: dict[str, int]
    """That databases were asked for, so far."""
    ticks: dict[str, float]
    """That were due, so far."""


@dataclass
class Counted:
    """What a day comes to."""

    seed: int
    hours: float
    real_seconds: float = 0.0
    ticks: dict[str, float] = field(default_factory=lambda: {"a": 0.0, "b": 0.0})
    round_trips: dict[str, int] = field(default_factory=dict)
    faults: Counter[str] = field(default_factory=Counter)
    scaled: Counter[str] = field(default_factory=Counter)
    events: Counter[str] = field(default_factory=Counter)
    asked: Counter[str] = field(default_factory=Counter)
    held: list[Held] = field(default_factory=list)
    at_the_end: dict[str, Any] = field(default_factory=dict)
    wrong: list[str] = field(default_factory=list)


class Day:
    """All that there is of it."""

    def __init__(
        self, counted: Counted, kube: ManyScalers, api: Door, databases: list[DayDatabase]
    ) -> None:
        self.counted = counted
        self.kube = kube
        self.api = api
        self.databases = databases
        self.stolen_since: float | None = None
        self.guests = 0
        self.pace = 1.0
        """Of what `EVERY` says."""
        # With a full day, everything has happened once before it is measured for the first time.
        self.calms = (2.0, counted.hours) if counted.hours > 4 else (counted.hours,)
        self._clock = asyncio.get_running_loop().time
        self._began = self._clock()

    def publish_secret(self, database: DayDatabase) -> None:
        self.kube.secrets[database.secret] = {"dsn": database.dsn}

    def settle(self) -> None:
        """Who is there from the beginning."""
        a, b = self.databases
        self._add(a, "steady-a", steady, 3)
        self._add(a, "wave-a", wave, 2, maxReplicas=8)
        self._add(a, "advice-a", wave, 2, mode="Recommend")
        self._add(b, "steady-b", steady, 3)
        self._add(b, "bursts-b", bursts, 1, minReplicas=0, idleSeconds=120)
        self.kube.deployments["guest"] = Deployment(2)
        b.fleets.append(Fleet("guest", steady, self._replicas("guest")))
        for database in self.databases:
            self.publish_secret(database)

    def _add(
        self,
        database: DayDatabase,
        name: str,
        arrivals: Callable[[float], float],
        replicas: int,
        **spec: Any,
    ) -> None:
        self.kube.deployments[name] = Deployment(replicas)
        destination = name.replace("-", "_")
        database.fleets.append(Fleet(destination, arrivals, self._replicas(name)))
        self.put(database, name, str(len(self.kube.scalers) + 1), **spec)

    def _replicas(self, name: str) -> Callable[[], int]:
        return lambda: self.kube.deployments[name].replicas

    def put(self, database: DayDatabase, name: str, uid: str, **spec: Any) -> None:
        body = scaler(
            name,
            uid=uid,
            scaleTargetRef={"name": name},
            database={"secretKeyRef": {"name": database.secret}},
            destinations=[name.replace("-", "_")],
            seedRatePerReplica="50",
            **{"maxReplicas": MAXIMUM} | spec,
        )
        self.kube.put(body)

    def invite(self, rng: random.Random) -> None:
        """Somebody who does not stay."""
        self.guests += 1
        self.put(self.databases[1], "guest", f"guest-{self.guests}", minReplicas=rng.randint(1, 3))

    def change(self, rng: random.Random) -> None:
        """The spec of somebody."""
        body = self.kube.scalers["wave-a"]
        body["spec"]["maxReplicas"] = rng.randint(5, 8)
        body["metadata"]["generation"] += 1
        self.kube.put(body)

    def scaled(self, name: str, replicas: int) -> None:
        """Judge it."""
        self.counted.scaled[name] += 1
        now = self._clock()
        body = self.kube.scalers.get(name)
        if body is None:
            self._wrong(f"{name} was scaled for nobody")
            return
        lowest, highest = body["spec"]["minReplicas"], body["spec"]["maxReplicas"]
        if not lowest <= replicas <= highest:
            self._wrong(f"{name} got {replicas} replicas instead of {lowest} to {highest}")
        if name.startswith(("steady", "advice")):
            self._wrong(f"{name} got {replicas} replicas, though nothing had changed")
        secret = body["spec"]["database"]["secretKeyRef"]["name"]
        database = next(each for each in self.databases if each.secret == secret)
        down = database.down_since is not None and now - database.down_since > BLIND
        if down or now - database.door.answered_at > BLIND:
            self._wrong(f"{name} got {replicas} replicas, though its database was away")
        if self.stolen_since is not None and now - self.stolen_since > STOLEN:
            self._wrong(f"{name} got {replicas} replicas, though another one led")

    def _wrong(self, what: str) -> None:
        self.counted.wrong.append(f"{self._clock():.0f} s: {what}")

    async def go_by(self) -> None:
        """Messages come and go."""
        while True:
            await asyncio.sleep(STEP)
            for database in self.databases:
                await database.step(self._clock(), STEP)
                asleep = any(
                    not self.kube.deployments[name].replicas for name in self._on(database)
                )
                self.counted.ticks[database.name] += STEP / (ASLEEP if asleep else TICK)

    def _on(self, database: DayDatabase) -> list[str]:
        """The scalers that look at it."""
        return [
            name
            for name, body in self.kube.scalers.items()
            if body["spec"]["database"]["secretKeyRef"]["name"] == database.secret
        ]

    async def trouble(self, kind: str, faults: Sequence[Fault]) -> None:
        """One after another, but for the calms."""
        rng = random.Random(f"{self.counted.seed} {kind}")
        while True:
            await asyncio.sleep(rng.expovariate(1 / (EVERY[kind] * self.pace)))
            for calm in self.calms:
                end = self._began + calm * 3600
                if end - CALM < self._clock() < end:
                    await asyncio.sleep(end + AFTERWARDS - self._clock())
            fault = rng.choice(faults)
            self.counted.faults[fault.__name__] += 1
            logging.getLogger("day").warning("%.0f s: %s", self._clock(), fault.__name__)
            await fault(self, rng)

    async def pass_by(self, others: Sequence[asyncio.Task[None]]) -> None:
        """All hours, unless one of the ``others`` ends."""
        hours = self.counted.hours
        within_calm = {calm - CALM / 3 / 3600 for calm in self.calms}
        for hour in sorted({*range(1, math.ceil(hours)), *self.calms, *within_calm}):
            left = self._began + hour * 3600 - self._clock()
            done, _ = await asyncio.wait(others, timeout=left, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
                self._wrong(f"{task.get_name()} has ended")
                return
            await self.hold(hour)

    def found(self) -> dict[str, Any]:
        """How everything is when there was no fault for a while."""
        conditions = {name: self.kube.conditions(name) for name in self.kube.scalers}
        return {
            "replicas": {name: each.replicas for name, each in self.kube.deployments.items()},
            "not ready": [
                name for name, said in conditions.items() if said.get("Ready", ("",))[0] != "True"
            ],
            "leader": self.kube.leases["pgoutbox-operator"]["spec"]["holderIdentity"],
        }

    async def hold(self, hour: float) -> None:
        """What there is now."""
        gc.collect()
        held = Held(
            hour=hour,
            rss_mb=rss() / 2**20,
            objects=len(gc.get_objects()),
            tasks=len([task for task in asyncio.all_tasks() if task.get_name() != "door"]),
            descriptors=descriptors(),
            connections=[await each.connections() for each in self.databases],
            looks={each.name: await each.looks() for each in self.databases},
            ticks=dict(self.counted.ticks),
        )
        self.counted.held.append(held)


def descriptors() -> int:
    """How many are open."""
    return sum(1 for _ in Path("/proc/self/fd").iterdir())


def rss() -> int:
    """Bytes."""
    pages = Path("/proc/self/statm").read_text(encoding="ascii").split()[1]
    return int(pages) * os.sysconf("SC_PAGE_SIZE")


async def day(given: argparse.Namespace) -> Counted:
    """All of it."""
    counted = Counted(seed=given.seed, hours=given.hours)
    began, before = time.monotonic(), descriptors()
    token = given.folder / "token"
    token.write_text("token", encoding="utf-8")
    async with AsyncExitStack() as stack:
        opened = [
            await stack.enter_async_context(day_database(name, dsn))
            for name, dsn in zip("ab", given.dsn, strict=True)
        ]
        kube = await stack.enter_async_context(ManyScalers())
        api = await stack.enter_async_context(Door(("127.0.0.1", kube.port)))
        doors = [api, *(each.door for each in opened)]
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualLoop)
        loop.excused = lambda fd: any(door.is_silent(fd) for door in doors)
        made = Day(counted, kube, api, opened)
        made.pace = given.pace
        kube.on_scale = made.scaled
        made.settle()
        server = Server(f"http://127.0.0.1:{api.port}", bearer(token), None)
        await operated(made, server)
        counted.at_the_end["connections after the stop"] = [
            await each.connections() for each in opened
        ]
    counted.at_the_end["tasks after the stop"] = [
        task.get_name() for task in asyncio.all_tasks() - {asyncio.current_task()}
    ]
    # Transports close their sockets in the next round.
    await asyncio.sleep(1)
    counted.at_the_end["descriptors left over"] = descriptors() - before
    counted.asked, counted.events = kube.asked, kube.events
    counted.real_seconds = time.monotonic() - began
    return counted


async def operated(made: Day, server: Server) -> None:
    """From the operator's start to its end."""
    counted, stop = made.counted, asyncio.Event()
    # Before the operator: when kopf gives up, it cancels every task that is younger than itself.
    others = [asyncio.create_task(made.go_by(), name="world")]
    for kind, faults in day_faults.ALL.items():
        others.append(asyncio.create_task(made.trouble(kind, faults), name=kind))
    options = Options(namespaces=(NAMESPACE,), lease=True, port=0)
    operator = asyncio.create_task(Operator(options, server).run(stop), name="operator")
    await made.pass_by([*others, operator])
    counted.at_the_end |= made.found()
    for database in made.databases:
        counted.round_trips[database.name] = database.door.sent
    stop.set()
    await operator
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)


def main() -> None:
    """By the arguments."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--hours", type=float, default=24.0)
    parser.add_argument("--pace", type=float, default=1.0)
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--dsn", action="append", required=True)
    parser.add_argument("--folder", type=Path, required=True)
    given = parser.parse_args()
    os.environ["POD_NAME"] = "operator"
    os.environ["POD_NAMESPACE"] = NAMESPACE
    with (given.folder / "log").open("w", encoding="utf-8") as log:
        logging.basicConfig(stream=log, level=logging.WARNING)
        structlog.configure(logger_factory=structlog.PrintLoggerFactory(log))
        counted = run_virtually(day(given))
    json.dump(counted, sys.stdout, indent=1, default=vars)


if __name__ == "__main__":
    main()
