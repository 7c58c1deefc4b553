"""Removing what was delivered long ago, batch by batch, and going round what cannot be removed."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

import psycopg

from pgoutbox.database.desk import begin
from pgoutbox.dispatch.batches import MAX_LEFT
from pgoutbox.dispatch.careful import is_about_rows
from pgoutbox.dispatch.retention import (
    ARCHIVE_KEPT,
    EVERYTHING,
    FIRST_KEPT,
    FIRST_OLD,
    PRUNE,
    Beyond,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

TURN_SECONDS = 0.1
"""Between two attempts while a worker prunes by itself."""
MOST = 1_000_000
"""What is counted: of a table with more, nobody shall wait for the exact number."""

# Index outbox_done. Under the mode archive, what has a day there is moved and not deleted.
TO_DELETE = b"""
SELECT count(*)
  FROM (SELECT FROM outbox AS o
         WHERE o.status = 'done' AND o.done_at < now() - %(keep)s::interval
           AND (NOT %(archive)s::boolean OR NOT EXISTS (
                SELECT FROM outbox_archive_partitions() AS day
                 WHERE o.done_at >= day.since AND o.done_at < day.until))
         LIMIT %(most)s) AS counted
"""
# As ARCHIVE_KEPT finds them.
TO_MOVE = b"""
SELECT count(*)
  FROM (SELECT FROM outbox_archive_partitions() AS day
         CROSS JOIN LATERAL (
               SELECT FROM outbox AS o
                WHERE o.status = 'done' AND o.done_at >= day.since AND o.done_at < day.until
                LIMIT %(most)s) AS kept
         LIMIT %(most)s) AS counted
"""


class Count(NamedTuple):
    """Messages, `MOST` of each at most."""

    deleted: int
    moved: int = 0
    """To the archive."""


@dataclass(slots=True, kw_only=True)
class Run:
    """One run, and how far it has come."""

    conn: psycopg.Connection
    schema: str
    keep: str
    archive: bool
    """Whether what has a day in the archive belongs there."""
    batch: int
    until: float
    """On the monotonic clock."""
    deleted: int = 0
    moved: int = 0
    refused: list[str] = field(default_factory=list)
    """What could not be removed, and why."""
    stop: threading.Event = field(default_factory=threading.Event)

    def left(self) -> Count:
        """How many there are to remove."""
        values = {"keep": self.keep, "archive": self.archive, "most": MOST}
        moved = int(self._run(TO_MOVE, values)[0]) if self.archive else 0
        return Count(int(self._run(TO_DELETE, values)[0]), moved)

    def pieces(self) -> Iterator[int]:
        """Remove them, a batch in each transaction. Yields how many each time."""
        if self.archive:
            for count in self._sweep(ARCHIVE_KEPT, FIRST_KEPT):
                self.moved += count
                yield count
        for count in self._sweep(PRUNE, FIRST_OLD):
            self.deleted += count
            yield count

    def _sweep(self, sweep: bytes, find: bytes) -> Iterator[int]:
        limit, beyond = self.batch, EVERYTHING
        while not self.stop.is_set() and time.monotonic() < self.until:
            try:
                ours, count = self._run(sweep, self._values(limit, beyond))
            except psycopg.Error as error:
                if not is_about_rows(error):
                    raise
                if limit > 1:
                    limit //= 2
                    continue
                beyond = self._around(error, find, beyond)
                continue
            if not ours:
                # A worker is at it, and has the turn for a statement.
                self.stop.wait(TURN_SECONDS)
            elif not count:
                return
            else:
                limit = min(2 * limit, self.batch)
                yield count

    def _around(self, error: psycopg.Error, find: bytes, beyond: Beyond) -> Beyond:
        """Step over the first one, which is the one that failed."""
        found = self._fetch(find, self._values(1, beyond))
        # None: somebody else has it now, and the next try passes over it.
        for number, done_at in found:
            self.refused.append(f"id {number}: {error.diag.message_primary or error}")
            if len(beyond.ids) < MAX_LEFT:
                return beyond._replace(ids=(*beyond.ids, number))
            return Beyond(done_at, (number,))
        return beyond

    def _values(self, limit: int, beyond: Beyond) -> dict[str, Any]:
        return {"keep": self.keep, "limit": limit, **beyond.parameters}

    def _run(self, statement: bytes, values: dict[str, Any]) -> tuple[Any, ...]:
        [row] = self._fetch(statement, values)
        return row

    def _fetch(self, statement: bytes, values: dict[str, Any]) -> list[tuple[Any, ...]]:
        with self.conn.transaction():
            begin(self.conn, self.schema)
            self.conn.execute("SET LOCAL statement_timeout = '60s'")
            return self.conn.execute(statement, values).fetchall()
