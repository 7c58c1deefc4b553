"""The product's own claim and finalize in turn on one connection, without a worker around them.

What a claim is called with is said here, in `LoopClaimer.take`, and nowhere else in this package.
"""

from __future__ import annotations

import asyncio
import time
from statistics import median
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from psycopg.rows import tuple_row

from pgoutbox.database.pool import Database
from pgoutbox.dispatch.claim import claim
from pgoutbox.dispatch.finalize import parameters
from pgoutbox.dispatch.finalize_statements import STATEMENTS
from pgoutbox.dispatch.scan import FRONT, ReadyScan
from pgoutbox.events import Settled
from pgoutbox.outcome import Finish, Published

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from multiprocessing.synchronize import Barrier

    import psycopg
    from psycopg.rows import AsyncRowFactory

    from pgoutbox.bench.place import Place
    from pgoutbox.dispatch.claim import ClaimedBatch

Timed: TypeAlias = tuple[int, float]
"""A claim: how many messages it brought, and the seconds until its answer."""

BATCH = 100
PATIENCE = 240.0
"""Seconds after which a drain is given up, and what it came to is all there is."""
PER_100_MS = 100 * 1e3


class OneConnection(Database):
    """Runs every statement on the given connection: no pool, and no thread or task between."""

    def __init__(self, place: Place, conn: psycopg.Connection[Any]) -> None:
        super().__init__(place.options)
        self._conn = conn
        conn.prepare_threshold = 0

    async def fetch(
        self,
        statement: bytes,
        parameters: Mapping[str, Any] | None = None,
        *,
        row_factory: AsyncRowFactory[Any] | None = None,  # noqa: ARG002 - the claim takes tuples
    ) -> list[Any]:
        """As the worker's, but blocking."""
        cursor = self._conn.cursor(binary=True, row_factory=tuple_row)
        return cursor.execute(statement, parameters).fetchall()


class LoopClaimer:
    """One worker's claims of the destination ``default``, and what it remembers between them."""

    def __init__(self, db: OneConnection) -> None:
        self._db = db
        self._scan = ReadyScan()

    async def take(self, count: int) -> ClaimedBatch:
        """One claim of up to ``count`` messages, from where the last one ended.

        As in a worker one claim a second begins at the front, and one that finds nothing is
        followed by such a one.
        """
        start = self._scan.start(time.monotonic())
        slots, starts = {"default": count}, {"default": start}
        batch = await claim(self._db, owner="bench", lease=30.0, slots=slots, starts=starts)
        if not batch and start != FRONT:
            self._scan = ReadyScan()
            return await self.take(count)
        full = batch.cut or len(batch) == count
        last = batch.last.get("default")
        self._scan.brought(start, last, full=full, now=time.monotonic())
        return batch

    async def finish(self, batch: ClaimedBatch) -> int:
        """One finalize: all of them are done."""
        done = [Settled(message, Published(), Finish(), 0.0, 0.0) for message in batch]
        return len(await self._db.fetch(STATEMENTS["keep"], parameters(done)))


def per_100_ms(claims: Sequence[Timed]) -> float:
    """Milliseconds for 100 messages on the average, so that a claim that costs much counts."""
    return sum(seconds for _, seconds in claims) / sum(count for count, _ in claims) * PER_100_MS


class Drained(NamedTuple):
    """What a drain came to."""

    claims: list[Timed]
    """Those that brought something."""
    finished: int
    seconds: float

    @property
    def claim_ms_per_100(self) -> float:
        """The median claim, in milliseconds for 100 messages."""
        return median(seconds / count for count, seconds in self.claims) * PER_100_MS

    @property
    def msgs_per_s(self) -> float:
        """Messages claimed and finalized per second."""
        return self.finished / self.seconds


class Gate:
    """Opens at once; a barrier stands in for it where two start together."""

    def wait(self) -> None:
        """Nothing to wait for."""


def drain(
    place: Place,
    *,
    batch: int = BATCH,
    most: int | None = None,
    patience: float = PATIENCE,
    gate: Gate | Barrier | None = None,
) -> Drained:
    """Claim ``batch``, finalize them, and so on until nothing is due, or ``most`` are done."""
    with place.connect() as conn:
        claimer = LoopClaimer(OneConnection(place, conn))
        (gate or Gate()).wait()
        return asyncio.run(_drain(claimer, batch, most, patience))


async def _drain(claimer: LoopClaimer, batch: int, most: int | None, patience: float) -> Drained:
    claims: list[Timed] = []
    finished = 0
    began = time.perf_counter()
    while True:
        sent = time.perf_counter()
        if sent - began > patience or (most is not None and finished >= most):
            break
        messages = await claimer.take(batch)
        if not messages:
            break
        claims.append((len(messages), time.perf_counter() - sent))
        finished += await claimer.finish(messages)
    return Drained(claims, finished, time.perf_counter() - began)
