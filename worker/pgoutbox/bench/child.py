"""The worker's process: runs the product, and says at the end what it took.

Started by `pgoutbox.bench.workers` as ``python -m pgoutbox.bench.child URL COUNT``, with settings
in the environment. Ends by itself after COUNT messages and prints one JSON object.
"""

from __future__ import annotations

import json
import os
import resource
import signal
import sys
import time
from typing import TYPE_CHECKING, Any

from pgoutbox.destinations.registry import open_publisher
from pgoutbox.events import Claimed, Finalized
from pgoutbox.settings import load_settings
from pgoutbox.telemetry.logs_setup import configure
from pgoutbox.worker import Worker, run_process

if TYPE_CHECKING:
    from pgoutbox.events import Event
    from pgoutbox.message import ClaimedMessage
    from pgoutbox.publisher import BatchPublisher, Publisher, PublisherOptions

STAMP = "stamp:"
KIB_PER_MB = 1024


class Stopwatch:
    """An observer: from before the first claim to the last finalize, in time and CPU."""

    def __init__(self, count: int) -> None:
        self._left = count
        self._count = count
        self._began: tuple[float, float] | None = None
        self.result: dict[str, Any] = {}

    def on_event(self, event: Event) -> None:
        """Start at the first claim; after the last message tell the worker to drain."""
        match event:
            case Claimed(_, _, seconds) if self._began is None:
                self._began = (time.perf_counter() - seconds, time.process_time())
            case Finalized(written):
                self._left -= len(written)
                if self._left <= 0 and not self.result:
                    self._stop()
            case _:
                pass

    def _stop(self) -> None:
        assert self._began is not None  # noqa: S101 - nothing is finalized before it is claimed
        wall, cpu = self._began
        self.result = {
            "seconds": time.perf_counter() - wall,
            "cpu_seconds": time.process_time() - cpu,
            "count": self._count,
            "rss_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / KIB_PER_MB,
        }
        os.kill(os.getpid(), signal.SIGTERM)


class Stamp:
    """A publisher that notes when it was entered, by the machine's monotonic clock."""

    def __init__(self) -> None:
        self.entered: dict[str, float] = {}

    async def publish(self, message: ClaimedMessage) -> None:
        """Take the time, and the message."""
        self.entered[str(message.message_id)] = time.monotonic()

    async def close(self) -> None:
        """Nothing to release."""


def main(url: str, count: int) -> int:
    """Run a worker until it has finalized ``count`` messages."""
    settings = load_settings(os.environ, to="noop://" if url == STAMP else url)
    configure(settings.log.format, level="warning")
    stamp = Stamp()
    watch = Stopwatch(count)

    async def opened(address: str, *, options: PublisherOptions) -> Publisher | BatchPublisher:
        return stamp if url == STAMP else await open_publisher(address, options=options)

    code = run_process(lambda: Worker(settings, [watch], opened).run())
    sys.stdout.write(json.dumps(watch.result | {"entered": stamp.entered}) + "\n")
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], int(sys.argv[2])))
