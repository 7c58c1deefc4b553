"""The play: what happens, in which order, and what is waited for."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

from pgoutbox.demo.consumer import Consumer
from pgoutbox.demo.plan import (
    DRAIN_GRACE,
    KILL_AT,
    LEASE,
    STOP_AT,
    WORKERS,
    DemoFailed,
)
from pgoutbox.demo.report import Findings
from pgoutbox.demo.shop import Shop
from pgoutbox.demo.table import Picture, WorkerLine
from pgoutbox.demo.watch import View, Watch
from pgoutbox.demo.workers import WorkerProcess, environment, read_logs

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pgoutbox.demo.place import Place
    from pgoutbox.demo.plan import Plan
    from pgoutbox.demo.table import Screen

TICK = 0.1
START_PATIENCE = 30.0
MOMENT_PATIENCE = 15.0
DRAIN_PATIENCE = 30.0
"""How long a backlog may wait without one message less in it."""
ENOUGH = 2
"""Leases that the worker to be killed shall hold at least."""


class Story:
    """One performance in ``place``; the workers' logs go to the folder ``logs``."""

    def __init__(self, plan: Plan, place: Place, screen: Screen, logs: Path) -> None:
        self._plan = plan
        self._place = place
        self._screen = screen
        self._logs = logs
        self._began = time.monotonic()
        self._now = ""
        self._shop = Shop(place.connect, plan.rate)
        self._workers: dict[str, WorkerProcess] = {}
        self._view = View()
        self._killed, self._stranded = "", 0
        self._stopped = ""
        self._consumer: Consumer
        self._watch: Watch

    async def tell(self) -> Findings:
        """Play it. Raises DemoFailed; whatever was started is ended in any case."""
        self._consumer = Consumer(self._place)
        self._watch = await Watch.open(self._place)
        try:
            await self._open()
            opened = time.monotonic()
            self._shop.start()
            await self._sell(opened + KILL_AT * self._plan.seconds)
            await self._kill_one()
            await self._sell(opened + STOP_AT * self._plan.seconds)
            await self._stop_one()
            await self._sell(opened + self._plan.seconds)
            self._shop.close()
            await self._drain_backlog()
            await self._send_home()
            return await self._findings()
        finally:
            await self._close()

    async def _open(self) -> None:
        self._now = "Three workers start; the shop is still closed."
        url = await self._consumer.start()
        for name in WORKERS:
            environ = environment(self._place, name, slots=self._plan.slots)
            self._workers[name] = WorkerProcess(name, environ, url, self._logs)
        if not await self._until(
            lambda: len(self._view.registered) == len(WORKERS), START_PATIENCE
        ):
            raise DemoFailed(f"the workers did not start within {START_PATIENCE:g} s")
        self._now = "The shop sells: each order and its message are one transaction."

    async def _sell(self, until: float) -> None:
        await self._until(lambda: time.monotonic() >= until, self._plan.seconds)

    async def _kill_one(self) -> None:
        """SIGKILL for the worker that holds the most, at a moment when it really holds some."""
        await self._until(
            lambda: max(self._view.leases.values(), default=0) >= ENOUGH, MOMENT_PATIENCE
        )
        leases = self._view.leases
        if not leases:
            raise DemoFailed(f"no worker held a message for {MOMENT_PATIENCE:g} s")
        self._killed = max(leases, key=leases.__getitem__)
        self._workers[self._killed].kill()
        self._view = await self._watch.look()
        self._stranded = self._view.leases.get(self._killed, 0)
        self._now = (
            f"{self._killed} was killed and left {self._stranded} messages;"
            f" the others may claim them when its leases expire, after {LEASE:g} s."
        )

    async def _stop_one(self) -> None:
        """SIGTERM for a worker that waits for a slow answer."""
        self._consumer.be_slow_once()
        await self._until(lambda: self._consumer.slow is not None, MOMENT_PATIENCE)
        slow = self._consumer.slow
        owner = await self._watch.owner_of(slow) if slow is not None else None
        if owner is None:
            raise DemoFailed(f"no worker published anything new for {MOMENT_PATIENCE:g} s")
        worker, self._stopped = self._workers[owner], owner
        worker.terminate()
        self._now = f"{owner} was told to stop: it claims nothing more and ends what it began."
        await self._until(lambda: worker.exit_code is not None, DRAIN_GRACE)
        self._now = (
            f"{owner} exited with {worker.exit_code} after {worker.drain_seconds:.1f} s;"
            " one worker is left, and slower than the shop."
        )

    async def _drain_backlog(self) -> None:
        """Until nothing is owed, or nothing moves any more: then the report tells what is lost."""
        self._now = "The shop has closed; the last worker delivers what is left."
        # Look again first: the shop's last message is younger than the last look.
        await self._until(lambda: True, 0)
        while before := self._view.undelivered:
            if not await self._until(lambda: self._view.undelivered < before, DRAIN_PATIENCE):
                break

    async def _send_home(self) -> None:
        left = self._view.undelivered
        self._now = (
            f"{left} messages do not move any more; the last worker is told to stop."
            if left
            else "Everything is delivered; the last worker goes home."
        )
        for worker in self._workers.values():
            if not worker.told_to_stop:
                worker.terminate()
        await self._until(
            lambda: all(worker.exit_code is not None for worker in self._workers.values()),
            DRAIN_GRACE,
        )

    async def _findings(self) -> Findings:
        shop, consumer = self._shop, self._consumer
        stopped = self._workers[self._stopped]
        return Findings(
            committed=shop.committed,
            rolled_back=shop.rolled_back,
            refused=shop.without_address,
            requested=consumer.requested,
            effects=await self._watch.effects(),
            dead=await self._watch.dead(),
            duplicates_seen=consumer.duplicates_seen,
            duplicates_absorbed=consumer.duplicates_absorbed,
            told=read_logs(worker.log for worker in self._workers.values()),
            killed=self._killed,
            stranded=self._stranded,
            stopped=self._stopped,
            drain_seconds=stopped.drain_seconds,
            exit_codes={
                worker.name: worker.exit_code
                for worker in self._workers.values()
                if not worker.killed
            },
        )

    async def _close(self) -> None:
        self._shop.close()
        for worker in self._workers.values():
            if worker.exit_code is None:
                worker.kill()
        await self._consumer.stop()
        await self._watch.close()

    async def _until(self, done: Callable[[], bool], within: float) -> bool:
        """Look and draw, again and again, until ``done``; False when it took too long."""
        deadline = time.monotonic() + within
        while True:
            self._view = await self._watch.look()
            self._check()
            self._screen.show(self._picture())
            if done():
                return True
            if time.monotonic() >= deadline:
                return False
            await asyncio.sleep(TICK)

    def _check(self) -> None:
        if self._shop.failure is not None:
            raise DemoFailed(f"the shop: {self._shop.failure}") from self._shop.failure
        for worker in self._workers.values():
            if worker.exit_code is not None and not worker.told_to_stop:
                raise DemoFailed(f"{worker.name} exited with {worker.exit_code} by itself")

    def _picture(self) -> Picture:
        view, shop, consumer = self._view, self._shop, self._consumer
        return Picture(
            now=self._now,
            seconds=time.monotonic() - self._began,
            committed=len(shop.committed),
            rolled_back=len(shop.rolled_back),
            waiting=view.undelivered,
            delivered=len(consumer.accepted),
            retries=consumer.retries,
            duplicates=consumer.duplicates_seen,
            dead=view.dead,
            workers=tuple(
                WorkerLine(name, worker.state(view.registered), view.leases.get(name, 0))
                for name, worker in self._workers.items()
            ),
        )
