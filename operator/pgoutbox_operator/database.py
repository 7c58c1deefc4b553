"""One outbox: one connection and one look at a tick, whoever wants to know."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import psycopg

from pgoutbox.database import statistics
from pgoutbox.database.conninfo import LOCAL_SETTINGS, DatabaseOptions, conninfo, local_settings
from pgoutbox.telemetry.exporter_source import (
    LOOK_SECONDS,
    STATEMENT_SECONDS,
    Look,
    Source,
    look_at,
)
from pgoutbox_operator.cluster import ClusterError
from pgoutbox_operator.connections import NoConnection
from pgoutbox_operator.crd import ConditionReason

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pgoutbox_operator.connections import Connection, Place

UPKEEP_SECONDS = 60.0
"""Between two looks at the horizon and at the vacuum, which nothing is decided by."""
MISSES = 3
"""So many looks may fail in a row before it is said."""


@dataclass(slots=True)
class Pace:
    """Of one who wants to know."""

    seconds: float = 0.0
    rung_at: float = float("-inf")


class Database(Source):
    """What the exporter shows of it is shown here, by the same code.

    Objects tell by `subscribe` how often they want a look, and are rung for after each.
    """

    def __init__(
        self, place: Place, connection: Connection, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._settings = DatabaseOptions(
            dsn=lambda: self._dsn,
            schema=place.schema,
            statement_timeout=STATEMENT_SECONDS,
            application_name="pgoutbox-operator",
        )
        super().__init__(self._settings, name=str(place), clock=clock)
        self.place = place
        self.misses = 0
        """Looks that failed since the last one that did not."""
        self.looks = 0
        self._connection = connection
        self._dsn = ""
        self._conn: psycopg.AsyncConnection[Any] | None = None
        self._kept: Look | None = None
        self._kept_at = float("-inf")
        self._bells: dict[asyncio.Event, Pace] = {}
        self._changed = asyncio.Event()

    @property
    def where(self) -> Mapping[str, str]:
        """As workers' and scalers' series are told apart; a file of the operator's is nowhere."""
        place = self.place
        name = place.name if place.key in {"", "dsn"} else f"{place.name}:{place.key}"
        database = name if place.schema == "public" else f"{name}/{place.schema}"
        return {"namespace": place.namespace, "database": database}

    @property
    def age(self) -> float:
        """Seconds since the last look ended."""
        return self._clock() - self._looked_at

    @property
    def subscribers(self) -> int:
        """How many want to know."""
        return len(self._bells)

    def subscribe(self, bell: asyncio.Event, seconds: float) -> None:
        """Ring ``bell`` after a look every so many seconds, whoever else wants more of them."""
        pace = self._bells.setdefault(bell, Pace())
        if pace.seconds != seconds:
            pace.seconds = seconds
            self._changed.set()

    def unsubscribe(self, bell: asyncio.Event) -> None:
        """Do not."""
        self._bells.pop(bell, None)

    async def tick(self) -> None:
        """Look once, and tell everybody."""
        await self.refresh()
        self.looks += 1
        self.misses = self.misses + 1 if self.error is not None else 0
        now = self._clock()
        for bell, pace in self._bells.items():
            # Whichever look is nearest.
            if now - pace.rung_at >= pace.seconds - self._interval / 2:
                pace.rung_at = now
                bell.set()

    async def pause(self, began: float) -> None:
        """Until the next look is due, by whoever wants it soonest."""
        while True:
            self._changed.clear()
            self._interval = min((pace.seconds for pace in self._bells.values()), default=15.0)
            left = began + self._interval - self._clock()
            if left <= 0:
                return
            try:
                async with asyncio.timeout(left):
                    await self._changed.wait()
            except TimeoutError:
                return

    def why_unknown(self) -> tuple[ConditionReason, str]:
        """Why the outbox is not known, for a condition."""
        error = self.error
        if isinstance(error, NoConnection):
            return error.reason, str(error)
        if isinstance(error, ClusterError):
            return ConditionReason.CLUSTER_ERROR, str(error)
        if isinstance(error, psycopg.Error) and error.sqlstate is not None:
            return ConditionReason.DATABASE_REFUSED, f"the database refused to tell: {_line(error)}"
        return ConditionReason.DATABASE_UNREACHABLE, f"the database: {_line(error)}"

    async def ask(self) -> Look:
        """Over the connection that is there, or a new one."""
        try:
            conn = await self._connected()
            return await self._look_over(conn)
        except BaseException:
            self._connection.forget()
            if self._conn is not None and not self._is_usable(self._conn):
                await self.close()
            raise

    async def close(self) -> None:
        """Give the connection back."""
        conn, self._conn = self._conn, None
        if conn is not None:
            await conn.close()

    async def _connected(self) -> psycopg.AsyncConnection[Any]:
        dsn = await self._connection.dsn()
        if self._conn is not None and (dsn != self._dsn or self._conn.closed):
            await self.close()
        self._dsn = dsn
        if self._conn is None:
            address = conninfo(self._settings, session_settings=False)
            self._conn = await psycopg.AsyncConnection.connect(
                address, autocommit=True, prepare_threshold=None
            )
        return self._conn

    async def _look_over(self, conn: psycopg.AsyncConnection[Any]) -> Look:
        if self._kept is None or self._clock() - self._kept_at >= UPKEEP_SECONDS:
            self._kept, self._kept_at = await look_at(conn, self._settings), self._clock()
            return self._kept
        try:
            async with conn.transaction():
                await conn.execute(LOCAL_SETTINGS, local_settings(self._settings))
                found = await statistics.read_async(conn, schema=self._settings.schema)
        except psycopg.Error as error:
            if not self._is_usable(conn):
                raise
            return self._kept._replace(statistics=None, failure=error)
        return self._kept._replace(statistics=found, failure=None)

    def _is_usable(self, conn: psycopg.AsyncConnection[Any]) -> bool:
        """After an error of a statement; not in the middle of one that was given up."""
        idle = psycopg.pq.TransactionStatus.IDLE
        return not conn.closed and conn.info.transaction_status == idle


def _line(error: BaseException | None) -> str:
    if error is None:
        return "not asked yet"
    if isinstance(error, TimeoutError):
        return f"no answer within {LOOK_SECONDS:g} seconds"
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return "; ".join(lines)[:300] or type(error).__name__
