"""A queue of spans, and the one task that sends them. Nobody waits for either.

What cannot be sent now stays until the queue is full; what is lost is counted, with why.
"""

from __future__ import annotations

import asyncio
from collections import deque
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple

import aiohttp
import structlog

from pgoutbox.telemetry.tracing.collector import post
from pgoutbox.telemetry.tracing.counts import EXIT, QUEUE_FULL, REJECTED, SpanCounts
from pgoutbox.telemetry.tracing.wire import SPAN_TAG, delimited

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pgoutbox.telemetry.tracing.collector import Answer, Collector

CANCEL = 0.1
"""Seconds that a request has to end when it is cancelled."""


class Limits(NamedTuple):
    """How many spans may wait, how many a request has, and seconds between two requests."""

    queue: int = 2048
    batch: int = 512
    delay: float = 5.0


def limits(environ: Mapping[str, str]) -> Limits:
    """From `OTEL_BSP_*`; what is no number there is as if it were not set."""
    default = Limits()
    queue = _number(environ, "MAX_QUEUE_SIZE", default.queue)
    batch = _number(environ, "MAX_EXPORT_BATCH_SIZE", default.batch)
    delay = _number(environ, "SCHEDULE_DELAY", int(default.delay * 1000))
    return Limits(queue, min(batch, queue), delay / 1000)


def _number(environ: Mapping[str, str], name: str, default: int) -> int:
    text = environ.get(f"OTEL_BSP_{name}", "").strip()
    return int(text) if text.isascii() and text.isdigit() and int(text) > 0 else default


class Exporter:
    """Sends what it is given to a collector."""

    def __init__(self, to: Collector, frame: Callable[[bytes], bytes], limits: Limits) -> None:
        """``frame`` makes the body of a request of encoded spans."""
        self._to = to
        self._frame = frame
        self._limits = limits
        self._waiting: deque[bytes] = deque()
        self._wake = asyncio.Event()
        self._closing = False
        self._task: asyncio.Task[None] | None = None
        self._log = structlog.get_logger()
        self._failing = False
        self._pause = 0.0
        """Seconds for which the collector asked to be left alone."""
        self.counts = SpanCounts()

    def add(self, span: bytes) -> None:
        """Have it sent, soon, unless too many wait already."""
        if self._closing or len(self._waiting) >= self._limits.queue:
            self.counts.dropped[EXIT if self._closing else QUEUE_FULL] += 1
            return
        self._waiting.append(span)
        if len(self._waiting) >= self._limits.batch and not self._failing:
            self._wake.set()

    def start(self) -> None:
        """Begin to send, on the running event loop."""
        self._log.info("tracing", collector=self._to.where)
        self._task = asyncio.create_task(self._run(), name="spans")

    async def close(self, seconds: float) -> None:
        """Send what waits, for at most so long; the rest is lost."""
        self._closing = True
        self._wake.set()
        if self._task is not None:
            await asyncio.wait({self._task}, timeout=seconds)
            self._task.cancel()
            await asyncio.wait({self._task}, timeout=CANCEL)
        if lost := len(self._waiting):
            self._waiting.clear()
            self.counts.dropped[EXIT] += lost
        if total := sum(self.counts.dropped.values()):
            self._log.warning("spans were lost", count=total, **self.counts.dropped)

    async def _run(self) -> None:
        # Environment: proxies, as every exporter of OpenTelemetry takes them from there.
        async with aiohttp.ClientSession(
            trust_env=True, cookie_jar=aiohttp.DummyCookieJar()
        ) as session:
            while not (self._closing and not self._waiting):
                await self._sleep()
                await self._send_all(session)
                if self._closing:
                    return

    async def _sleep(self) -> None:
        try:
            async with asyncio.timeout(max(self._limits.delay, self._pause)):
                await self._wake.wait()
        except TimeoutError:
            return
        self._wake.clear()

    async def _send_all(self, session: aiohttp.ClientSession) -> None:
        """Until fewer than a request's worth are left: those may wait for others."""
        least = 1
        while len(self._waiting) >= least:
            batch = list(islice(self._waiting, self._limits.batch))
            answer = await post(session, self._to, self._request(batch))
            self._tell(answer)
            self._pause = answer.pause
            if answer.again:
                # What was added meanwhile is no reason to come back at once.
                if not self._closing:
                    self._wake.clear()
                return
            rejected = min(answer.rejected, len(batch))
            self.counts.exported += len(batch) - rejected
            self.counts.dropped[REJECTED] += rejected
            for _ in batch:
                self._waiting.popleft()
            least = 1 if self._closing else self._limits.batch

    def _request(self, batch: list[bytes]) -> bytes:
        spans = b"".join([delimited(SPAN_TAG, span) for span in batch])
        return self._frame(spans)

    def _tell(self, answer: Answer) -> None:
        """Once when it begins to fail, and once when it works again."""
        if answer.problem and not self._failing:
            self._log.warning(
                "the collector does not take spans",
                collector=self._to.where,
                error=answer.problem,
            )
        if self._failing and not answer.problem:
            self._log.info(
                "the collector takes spans again", dropped=sum(self.counts.dropped.values())
            )
        self._failing = bool(answer.problem)
