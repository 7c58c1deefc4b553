"""A publisher that fails, dawdles and stalls as a seed says, and writes down when it did what.

The journal is a file per life of a worker, written with one system call per line, so that what
was written stands there whenever the process is killed.
"""

from __future__ import annotations

import asyncio
import os
import random
import time
from collections import defaultdict
from datetime import timedelta
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from pgoutbox.errors import (
    Defer,
    DestinationUnavailable,
    PermanentError,
    PublishError,
    RetryableError,
)
from tests.support.order_oracle import TAKEN, Publish

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from pgoutbox.message import ClaimedMessage
    from pgoutbox.publisher import PublisherOptions

# Out of a thousand publishes. Whatever a lease's version brings, the next one is asked anew.
PER_MILLE = {
    "fails": 12.0,
    "dawdles": 8.0,
    "defers": 3.0,
    "is away": 1.0,
    "refuses": 0.4,
    "stalls": 0.3,
}
BATCHED = "batched"
"""The destination that takes batches."""
ENTRY_POINTS = """\
[pgoutbox.publishers]
drill = tests.support.order_publisher:open_drilled
"""
METADATA = "Metadata-Version: 2.1\nName: pgoutbox-drill\nVersion: 1\n"


class Manner(NamedTuple):
    """What a publisher of the drill does. It fits into a URL."""

    folder: Path
    seed: int
    faults: float
    """How often it does something else than take the message; 1 for `PER_MILLE`."""
    stall: float
    """Seconds that one stall stops the whole worker for: longer than its lease."""

    def url(self) -> str:
        """What `open_drilled` understands."""
        return f"drill://{self.seed}/{self.faults}/{self.stall}{self.folder}"

    def open(self, worker: str, destination: str) -> Drilled | DrilledBatch:
        """The publisher for one destination of one life of a worker."""
        return (DrilledBatch if destination == BATCHED else Drilled)(self, worker, destination)

    def fate(self, message: str, version: int) -> str:
        """What becomes of the message under this version of its lease."""
        dice = random.Random(f"{self.seed} {message} {version}").uniform(0.0, 1000.0)
        for fate, share in PER_MILLE.items():
            dice -= share * self.faults
            if dice < 0:
                return fate
        return TAKEN


class Journal:
    """What one life of a worker has published to one destination, or tried to."""

    def __init__(self, manner: Manner, worker: str, destination: str) -> None:
        self._manner = manner
        path = manner.folder / f"{worker} {destination}.journal"
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    async def close(self) -> None:
        """Close the file."""
        os.close(self._file)

    def _begin(self, *messages: ClaimedMessage) -> None:
        now = f"{time.time():.6f}"
        self._write(*(f"{now} {_name(message)}" for message in messages))

    def _end(self, outcomes: Mapping[ClaimedMessage, str]) -> None:
        self._write(*(f"{time.time():.6f} {_name(m)} {how}" for m, how in outcomes.items()))

    def _write(self, *lines: str) -> None:
        os.write(self._file, "".join(f"{line}\n" for line in lines).encode())

    async def _act(self, message: ClaimedMessage) -> None:
        await asyncio.sleep(0)
        match self._manner.fate(message.message_id.hex, message.lease_version):
            case "fails":
                raise RetryableError("the dice said so")
            case "dawdles":
                await asyncio.sleep(0.1)
            case "defers":
                raise Defer(timedelta(seconds=0.05), "the dice said so")
            case "is away":
                raise DestinationUnavailable("the dice said so")
            case "refuses":
                raise PermanentError("the dice said so")
            case "stalls":
                time.sleep(self._manner.stall)  # noqa: ASYNC251 - the whole worker stands still


class Drilled(Journal):
    """A publisher of single messages."""

    async def publish(self, message: ClaimedMessage) -> None:
        """Take it, or not."""
        self._begin(message)
        outcome = "cancelled"
        try:
            await self._act(message)
            outcome = TAKEN
        except PublishError as error:
            outcome = type(error).__name__
            raise
        finally:
            self._end({message: outcome})


class DrilledBatch(Journal):
    """A publisher of batches, each message of which has an outcome of its own."""

    async def publish_batch(
        self, messages: Sequence[ClaimedMessage]
    ) -> Sequence[PublishError | None]:
        """Take them, or not."""
        self._begin(*messages)
        outcomes = dict.fromkeys(messages, "cancelled")
        try:
            errors = [await self._error(message) for message in messages]
            for message, error in zip(messages, errors, strict=True):
                outcomes[message] = TAKEN if error is None else type(error).__name__
        finally:
            self._end(outcomes)
        return errors

    async def _error(self, message: ClaimedMessage) -> PublishError | None:
        try:
            await self._act(message)
        except PublishError as error:
            return error
        return None


async def open_drilled(url: str, /, *, options: PublisherOptions) -> Drilled | DrilledBatch:
    """The factory that the entry point names."""
    seed, faults, stall, folder = url.removeprefix("drill://").split("/", 3)
    manner = Manner(Path("/", folder), int(seed), float(faults), float(stall))
    return manner.open(f"{os.environ['PGOUTBOX_OWNER']} {os.getpid()}", options.destination)


def _name(message: ClaimedMessage) -> str:
    return f"{message.message_id.hex} {message.lease_version}"


def install(folder: Path) -> Path:
    """Make the publisher known to processes that have this folder in their PYTHONPATH."""
    info = folder / "pgoutbox_drill-1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(METADATA)
    (info / "entry_points.txt").write_text(ENTRY_POINTS)
    return folder


def read_journals(folder: Path, deaths: Mapping[str, float]) -> list[Publish]:
    """All publishes; what a killed worker had begun ended with its death."""
    found: list[Publish] = []
    for journal in sorted(folder.glob("*.journal")):
        worker, destination = journal.stem.rsplit(" ", 1)
        died = deaths.get(worker.rsplit(" ", 1)[0], inf)
        found += (
            Publish(message, version, worker, destination, began, min(ended, died), outcome)
            for message, version, began, ended, outcome in calls(journal.read_text())
        )
    return found


def calls(journal: str) -> Iterator[tuple[str, int, float, float, str]]:
    """Message, version, begin, end and outcome of each call; infinity where no end is written."""
    begun: defaultdict[tuple[str, int], list[float]] = defaultdict(list)
    for line in journal.splitlines():
        at, message, version, *outcome = line.split(" ")
        lease = message, int(version)
        if outcome:
            yield *lease, begun[lease].pop(), float(at), " ".join(outcome)
        else:
            begun[lease].append(float(at))
    for lease, left in begun.items():
        for at_last in left:
            yield *lease, at_last, inf, "cut off"
