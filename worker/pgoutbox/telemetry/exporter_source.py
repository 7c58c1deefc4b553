"""Looks at one database, once per interval, and remembers what the last look found."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

import psycopg
import structlog

from pgoutbox.database import horizon, statistics, upkeep
from pgoutbox.database.conninfo import LOCAL_SETTINGS, DatabaseOptions, conninfo, local_settings
from pgoutbox.errors import PgOutboxError
from pgoutbox.events import DatabaseFailed
from pgoutbox.telemetry.exporter_labels import Labels
from pgoutbox.telemetry.quiet import clean

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pgoutbox.database.horizon import Horizon
    from pgoutbox.database.statistics import Statistics
    from pgoutbox.database.upkeep import Upkeep

DEFAULT_INTERVAL = 10.0
STATEMENT_SECONDS = 2.0
LOOK_SECONDS = 8.0
"""How long one look may take in all: a try at each of two hosts, and four statements."""
NO_OUTBOX = (psycopg.errors.UndefinedFunction, psycopg.errors.InvalidSchemaName)


class Look(NamedTuple):
    """What one look at a database found."""

    statistics: Statistics | None
    """None where they failed."""
    horizon: Horizon | None
    """None where this role may not ask."""
    upkeep: Upkeep | None = None
    """None where there is no outbox."""
    failure: psycopg.Error | None = None
    """Why there are no statistics."""


class Source:
    """One database: how to look at it, and what the last look found."""

    def __init__(
        self,
        options: DatabaseOptions,
        *,
        name: str | None = None,
        interval: float = DEFAULT_INTERVAL,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """``name`` of the database, where there are several.

        ``interval``: seconds from the begin of one look to that of the next.
        """
        self.name = name
        self.labels = Labels(clock=clock)
        self._options = options
        self._interval = interval
        self._clock = clock
        named = {} if name is None else {"database": name}
        self._log = structlog.get_logger().bind(**named)
        self._look: Look | None = None
        self._looked_at = clock()
        self._failed_at: float | None = None
        self._said = ""
        self.error: BaseException | None = None
        """Why the last look failed, where it did."""
        self.duration: float | None = None
        """Seconds that the last look took, whether or not it failed. None before the first."""
        self.succeeded_at: float | None = None
        """When the last look that found everything ended, in seconds since the epoch."""

    @property
    def where(self) -> Mapping[str, str]:
        """Labels, with their values, that tell its series from those of other databases."""
        return {} if self.name is None else {"database": self.name}

    @property
    def look(self) -> Look | None:
        """What the last look found; None if it failed, or if it was too long ago."""
        age = self._clock() - self._looked_at
        return self._look if age <= 2 * self._interval + LOOK_SECONDS else None

    async def watch(self) -> NoReturn:
        """Look, once per interval. Raises nothing that another try may cure."""
        while True:
            began = self._clock()
            await self.refresh()
            await asyncio.sleep(max(began + self._interval - self._clock(), 0.0))

    async def ask(self) -> Look:
        """One look, over a connection of its own: a new password or primary is taken up."""
        address = conninfo(self._options, session_settings=False)
        async with await psycopg.AsyncConnection.connect(
            address, autocommit=True, prepare_threshold=None
        ) as conn:
            return await look_at(conn, self._options)

    async def look_once(self) -> tuple[Look | None, BaseException | None]:
        """What one look finds, and why not all of it. Remembers nothing, and tells nobody."""
        try:
            async with asyncio.timeout(LOOK_SECONDS):
                look = await self.ask()
        except (psycopg.Error, PgOutboxError, OSError, ValueError) as error:
            return None, error
        except (LookupError, TypeError, AttributeError) as error:
            # An answer that is none of ours. It must not take other databases' gauges away.
            return None, PgOutboxError(
                f"the answer of outbox_stats or outbox_horizon is not known: {error!r}"
            )
        return look, look.failure

    async def refresh(self) -> None:
        """Look once."""
        began = self._clock()
        self._look, failure = await self.look_once()
        if failure is None:
            self.succeeded_at = time.time()
            self._tell_success()
        else:
            self._tell_failure(failure)
        self._looked_at = self._clock()
        self.duration = self._looked_at - began

    def why(self, failure: BaseException) -> str:
        """Why a look failed, on one line for people."""
        if isinstance(failure, NO_OUTBOX):
            # What PostgreSQL says and advises then is about casts.
            return (
                f'there is no outbox in schema "{self._options.schema}" of this database:'
                " run `pgoutbox migrate`"
            )
        return clean(DatabaseFailed.because("look", failure).error or type(failure).__name__)

    def _tell_failure(self, error: BaseException) -> None:
        self.error = error
        if self._failed_at is None:
            self._failed_at = self._clock()
        said = self.why(error)
        if said != self._said:
            self._said = said
            self._log.warning("database failed", doing="look", error=said)

    def _tell_success(self) -> None:
        if self._failed_at is not None:
            seconds = round(self._clock() - self._failed_at, 1)
            self._log.info("database recovered", seconds=seconds)
        self._failed_at, self._said, self.error = None, "", None


async def look_at(conn: psycopg.AsyncConnection[Any], options: DatabaseOptions) -> Look:
    """The horizon and the vacuum, and then the statistics.

    In this order: the first two cost next to nothing, and a held horizon makes the statistics slow,
    until they are not finished in time.
    """
    async with conn.transaction():
        await conn.execute(LOCAL_SETTINGS, local_settings(options))
        held = await horizon.read_async(conn, schema=options.schema)
        kept = await upkeep.read_async(conn, schema=options.schema)
        try:
            async with conn.transaction():
                return Look(await statistics.read_async(conn, schema=options.schema), held, kept)
        except psycopg.Error as error:
            if conn.broken:
                raise
            return Look(None, held, kept, error)
