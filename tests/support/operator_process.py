"""`pgoutbox-operator run` as a process of its own, before a real API server."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
import time
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import aiohttp

from tests.support.api_server import SCALER

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from pathlib import Path

    from tests.support.api_server import Shop

TICK = 5
"""Seconds; the shortest that the definition allows."""
QUICK = {"periodSeconds": TICK}
START = 30.0
STEP = 0.05


class OperatorProcess:
    """Its log is a file of JSON lines."""

    def __init__(
        self, namespace: str | None, log: Path, *arguments: str, **environment: str
    ) -> None:
        """``namespace``: to look after, and to be at home in; None: as the others say."""
        self._log = log
        self._arguments = ["--port", "0", *arguments]
        self._environment = {"POD_NAME": log.stem} | environment
        if namespace is not None:
            self._arguments += ["--namespace", namespace]
            self._environment["POD_NAMESPACE"] = namespace
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def process(self) -> subprocess.Popen[bytes]:
        if self._process is None:
            raise AssertionError("it was not started")
        return self._process

    @property
    def alive(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def log(self) -> str:
        """All of it."""
        return self._log.read_text(encoding="utf-8") if self._log.exists() else ""

    @property
    def lines(self) -> list[dict[str, Any]]:
        """What it logged in whole lines."""
        whole = (line for line in self.log.splitlines(keepends=True) if line[-1] == "\n")
        return [json.loads(line) for line in whole]

    async def start(self) -> None:
        """Return once it watches."""
        await asyncio.to_thread(self._spawn)
        await self.until(lambda: self._said("operator started") or not self.alive)
        await self.until_ready()

    async def until_ready(self) -> None:
        async with aiohttp.ClientSession() as session:
            deadline = time.monotonic() + START
            while True:
                async with session.get(f"{self.url}/readyz") as response:
                    if response.status == 200:
                        return
                if time.monotonic() > deadline:
                    raise AssertionError(f"the operator is not ready: {self.lines}")
                await asyncio.sleep(STEP)

    @property
    def url(self) -> str:
        started = self._said("operator started")
        if not started:
            raise AssertionError(f"the operator did not start: {self.log}")
        return f"http://127.0.0.1:{started[-1]['port']}"

    async def metrics(self) -> dict[str, float]:
        """By name and labels, as they are written."""
        async with aiohttp.ClientSession() as session, session.get(f"{self.url}/metrics") as page:
            text = await page.text()
        samples = (line.rsplit(" ", 1) for line in text.splitlines() if line[:1] not in {"#", ""})
        return {name: float(value) for name, value in samples}

    async def until_visits(self, number: int, *scalers: str) -> None:
        """Return once it has visited each of these so often, or once more."""
        seen: dict[str, set[float]] = {name: set() for name in scalers}
        series = re.compile(
            r'outbox_scaler_last_reconcile_timestamp_seconds\{.*name="(?P<name>[^"]*)".*\}'
        )

        def enough(found: dict[str, float]) -> bool:
            for key, value in found.items():
                match = series.fullmatch(key)
                if match and value:
                    seen[match["name"]].add(value)
            return all(len(values) >= number for values in seen.values())

        await self.until_metrics(enough)

    async def until_metrics(self, holds: Callable[[dict[str, float]], object]) -> None:
        """Return once it holds."""
        deadline = time.monotonic() + START
        while not holds(found := await self.metrics()):
            if time.monotonic() > deadline:
                raise AssertionError(f"so it is not: {found}")
            await asyncio.sleep(STEP)

    async def until(self, holds: Callable[[], object], *, within: float = START) -> None:
        """Return once it holds, of the log for one."""
        deadline = time.monotonic() + within
        while not holds():
            if time.monotonic() > deadline:
                raise AssertionError(f"it is not so within {within:g} s")
            await asyncio.sleep(STEP)

    async def end(self, number: signal.Signals = signal.SIGTERM) -> int:
        """The exit code."""
        self.process.send_signal(number)
        return await asyncio.to_thread(self.process.wait, START)

    def _said(self, event: str) -> list[dict[str, Any]]:
        return [line for line in self.lines if line["event"] == event]

    def _spawn(self) -> None:
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "pgoutbox_operator", "run", *self._arguments],
                env=os.environ | {"PGOUTBOX_OPERATOR_LOG_FORMAT": "json"} | self._environment,
                stdout=log,
                stderr=subprocess.STDOUT,
            )


@asynccontextmanager
async def operating(
    namespace: str | None,
    folder: Path,
    *arguments: str,
    name: str = "operator",
    complains: bool = False,
    **environment: str,
) -> AsyncIterator[OperatorProcess]:
    """One that runs until the block ends. ``complains``: it is to log errors."""
    made = OperatorProcess(namespace, folder / f"{name}.log", *arguments, **environment)
    try:
        await made.start()
        yield made
        if not complains:
            failures = [line for line in made.lines if line["level"] in {"error", "critical"}]
            assert not failures, failures
    except Exception as error:
        error.add_note(f"{name} logged: {made.log[-4000:]}")
        raise
    finally:
        if made.alive:
            await made.end(signal.SIGKILL)


async def a_scaler(place: Shop, name: str = SCALER, **changes: Any) -> None:
    """Of which one replica publishes 50 messages a second."""
    await place.add_scaler(
        name, **{"seedRatePerReplica": "50", "scaleUp": QUICK, "maxReplicas": 7} | changes
    )


@asynccontextmanager
async def scaled(
    place: Shop, logs: Path, *, operator: str = "operator", **changes: Any
) -> AsyncIterator[OperatorProcess]:
    """An operator, called so, that has looked at the scaler."""
    async with operating(place.namespace, logs, name=operator) as made:
        await a_scaler(place, **changes)
        await place.until_condition("Ready", "True", "Reconciled")
        yield made
