"""`pgoutbox-operator run` as a process of its own, before a real API server."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import aiohttp

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from pathlib import Path

START = 30.0
STEP = 0.05


class OperatorProcess:
    """Its log is a file of JSON lines."""

    def __init__(self, namespace: str, log: Path, *arguments: str, **environment: str) -> None:
        self.namespace = namespace
        self._log = log
        self._arguments = ["--namespace", namespace, "--port", "0", *arguments]
        self._environment = {"POD_NAME": log.stem, "POD_NAMESPACE": namespace} | environment
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def process(self) -> subprocess.Popen[bytes]:
        if self._process is None:
            raise AssertionError("it was not started")
        return self._process

    @property
    def alive(self) -> bool:
        return self.process.poll() is None

    @property
    def lines(self) -> list[dict[str, Any]]:
        """What it logged in whole lines."""
        text = self._log.read_text(encoding="utf-8")
        return [json.loads(line) for line in text.splitlines(keepends=True) if line[-1] == "\n"]

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
            raise AssertionError(f"the operator did not start: {self._log.read_text()}")
        return f"http://127.0.0.1:{started[-1]['port']}"

    async def metrics(self) -> dict[str, float]:
        """By name and labels, as they are written."""
        async with aiohttp.ClientSession() as session, session.get(f"{self.url}/metrics") as page:
            text = await page.text()
        samples = (line.rsplit(" ", 1) for line in text.splitlines() if line[:1] not in {"#", ""})
        return {name: float(value) for name, value in samples}

    async def until_visits(self, number: int) -> None:
        """Return once it has visited its only object so often, or once more."""
        seen: set[float] = set()

        def enough(found: dict[str, float]) -> bool:
            name = "outbox_scaler_last_reconcile_timestamp_seconds"
            seen.update(value for key, value in found.items() if key.startswith(name) and value)
            return len(seen) >= number

        await self.until_metrics(enough)

    async def until_metrics(self, holds: Callable[[dict[str, float]], object]) -> None:
        """Return once it holds."""
        deadline = time.monotonic() + START
        while not holds(found := await self.metrics()):
            if time.monotonic() > deadline:
                raise AssertionError(f"{found}: {self._log.read_text()[-4000:]}")
            await asyncio.sleep(STEP)

    async def until(self, holds: Callable[[], object], *, within: float = START) -> None:
        """Return once it holds, of the log for one."""
        deadline = time.monotonic() + within
        while not holds():
            if time.monotonic() > deadline:
                raise AssertionError(f"not within {within:g} s: {self._log.read_text()[-4000:]}")
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
    namespace: str, folder: Path, *arguments: str, name: str = "operator", **environment: str
) -> AsyncIterator[OperatorProcess]:
    """One that runs until the block ends."""
    made = OperatorProcess(namespace, folder / f"{name}.log", *arguments, **environment)
    await made.start()
    try:
        yield made
    finally:
        if made.alive:
            await made.end(signal.SIGKILL)
