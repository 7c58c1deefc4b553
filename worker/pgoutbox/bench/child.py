"""The worker's process: runs the product, and says at the end what it took.

Started by `pgoutbox.bench.workers` as ``python -m pgoutbox.bench.child URL COUNT PATIENCE``, with
settings in the environment. Ends by itself after COUNT messages, and in any case PATIENCE seconds
after it began; prints one JSON object.
"""

from __future__ import annotations

import asyncio
import json
import os
import resource
import signal
import sys
import time
from typing import TYPE_CHECKING, Any

from pgoutbox.destinations.registry import open_publisher
from pgoutbox.errors import RetryableError
from pgoutbox.events import Claimed, Finalized
from pgoutbox.outcome import Finish
from pgoutbox.settings import load_settings
from pgoutbox.telemetry.logs_setup import configure
from pgoutbox.worker import Worker, run_process

if TYPE_CHECKING:
    from pgoutbox.events import Event
    from pgoutbox.message import ClaimedMessage
    from pgoutbox.publisher import BatchPublisher, Publisher, PublisherOptions

STAMP = "stamp:"
FLAKY = "flaky:"
FLAKY_EVERY = 20
STAND_IN = "noop://"
"""What the settings say where one of these two is meant."""
KIB_PER_MB = 1024


class Stopwatch:
    """An observer: from before the first claim to the last finalize, in time and CPU."""

    def __init__(self, count: int) -> None:
        self._count = count
        self._finished = 0
        self._began: tuple[float, float] | None = None
        self._last = (0.0, 0.0)
        self._claims: list[tuple[int, float]] = []
        self._progress: list[tuple[int, float]] = []
        self._stopped = False

    def on_event(self, event: Event) -> None:
        """Start at the first claim; after the last message tell the worker to drain."""
        match event:
            case Claimed(messages, _, seconds):
                if self._began is None:
                    self._began = (time.perf_counter() - seconds, time.process_time())
                self._claims.append((len(messages), seconds))
            case Finalized(written):
                self._finished += sum(isinstance(done.transition, Finish) for done in written)
                self._last = (time.perf_counter(), time.process_time())
                self._progress.append((self._finished, self._last[0]))
                if self._finished >= self._count:
                    self.stop()
            case _:
                pass

    def stop(self) -> None:
        """Tell the worker to drain. Only the first time counts."""
        if not self._stopped:
            self._stopped = True
            os.kill(os.getpid(), signal.SIGTERM)

    def result(self) -> dict[str, Any]:
        """What it came to."""
        wall, cpu = self._began or self._last
        return {
            "seconds": self._last[0] - wall,
            "cpu_seconds": self._last[1] - cpu,
            "finished": self._finished,
            "claims": self._claims,
            "progress": [(finished, at - wall) for finished, at in self._progress],
            "rss_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / KIB_PER_MB,
        }


class Stamp:
    """A publisher that notes when it was entered, by the machine's monotonic clock."""

    def __init__(self) -> None:
        self.entered: dict[str, float] = {}

    async def publish(self, message: ClaimedMessage) -> None:
        """Take the time, and the message."""
        self.entered[str(message.message_id)] = time.monotonic()

    async def close(self) -> None:
        """Nothing to release."""


class Flaky:
    """A publisher that fails each twentieth message at its first attempt."""

    async def publish(self, message: ClaimedMessage) -> None:
        """Take it, or fail."""
        if message.attempts == 1 and message.id % FLAKY_EVERY == 0:
            raise RetryableError("not at the first attempt")

    async def close(self) -> None:
        """Nothing to release."""


def main(url: str, count: int, patience: float) -> int:
    """Run a worker until it has finished ``count`` messages, or ``patience`` is over."""
    stamp = Stamp()
    own: dict[str, Publisher] = {STAMP: stamp, FLAKY: Flaky()}
    settings = load_settings(os.environ, to=STAND_IN if url in own else url)
    # What fails on purpose is not news.
    configure(settings.log.format, level="error" if url in own else "warning")
    watch = Stopwatch(count)

    async def opened(address: str, *, options: PublisherOptions) -> Publisher | BatchPublisher:
        asyncio.get_running_loop().call_later(patience, watch.stop)
        replaced = url in own and address == STAND_IN
        return own[url] if replaced else await open_publisher(address, options=options)

    code = run_process(lambda: Worker(settings, [watch], opened).run())
    sys.stdout.write(json.dumps(watch.result() | {"entered": stamp.entered}) + "\n")
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], int(sys.argv[2]), float(sys.argv[3])))
