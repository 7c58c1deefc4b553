"""Step 4: write what was decided, under the fence. The only place that ends a lease.

Renewals aside (`pgoutbox.dispatch.renew`), no other statement writes to a row that somebody
holds. Every row carries id, version and status, and what was not written is reported.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, assert_never

from psycopg import DatabaseError, DataError, IntegrityError, OperationalError
from psycopg.errors import LockNotAvailable, QueryCanceled

from pgoutbox.dispatch.arrays import bigints, plain
from pgoutbox.dispatch.finalize_statements import STATEMENTS
from pgoutbox.dispatch.together import split, with_lanes
from pgoutbox.events import Refused
from pgoutbox.outcome import Bury, DeferUntil, Finish, Release, Retry

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pgoutbox.database.pool import Database
    from pgoutbox.dispatch.finalize_statements import Mode
    from pgoutbox.events import Settled

FINALIZE = STATEMENTS["keep"]

# Which of the rows a finalize would have to wait for. One that is gone or has been taken over is
# not among them: it is answered for without its lock.
LOCKED = b"""
SELECT d.id, d.version
  FROM unnest(%(ids)s::bigint[], %(versions)s::bigint[]) AS d (id, version)
 CROSS JOIN LATERAL (
    SELECT o.id
      FROM outbox AS o
     WHERE o.id = d.id
       AND o.lease_version = d.version
       AND o.status = 'processing') AS held
  LEFT JOIN LATERAL (
    SELECT o.id
      FROM outbox AS o
     WHERE o.id = d.id
       FOR UPDATE SKIP LOCKED) AS free ON true
 WHERE free.id IS NULL
"""

# After a lost answer: whose are the rows that the retry could not write?
EXPLAIN_UNWRITTEN = b"""
SELECT o.id, o.lease_version, o.status
  FROM unnest(%(ids)s::bigint[]) AS u (id)
 CROSS JOIN LATERAL (SELECT * FROM outbox AS p WHERE p.id = u.id) AS o
"""

MAX_ERROR_CHARACTERS = 2000
PATIENCE = 0.5
"""Seconds to wait for the lock of one row."""

# How much may fail in one call before what fails is left for the next call: enough to find one
# row among thousands, and far less than all of them when it is the disk that is full. A statement
# that ran into the statement timeout has kept all others waiting for it.
FAILURES = 16
CANCELED = 8


class Row(NamedTuple):
    """The columns of one transition."""

    status: str
    delay: float | None
    refund: int
    error: str | None
    skipped: bool = False


class Written(NamedTuple):
    """What one batch came to; see `pgoutbox.events.Finalized`."""

    written: list[Settled]
    lost: list[Settled]
    already_written: list[Settled]
    unknown: list[Settled]
    refused: list[Refused]
    locked: list[Settled]
    """Neither written nor lost: somebody else's transaction holds the row."""
    stuck: list[Refused]
    """Neither written nor lost: what runs along with the write fails, and may work later."""
    canceled: list[QueryCanceled]
    """How often a part took longer than a statement may."""
    kept: list[str]
    """Why what is done stayed in the outbox, though it was to leave it."""

    @classmethod
    def only(cls, **parts: list[Any]) -> Written:
        """With everything else empty."""
        return cls(*(parts.get(name, []) for name in cls._fields))

    def __add__(self, other: tuple[Any, ...]) -> Written:
        """Both, part by part."""
        return Written(*(one + two for one, two in zip(self, other, strict=True)))


async def finalize(
    db: Database,
    batch: Sequence[Settled],
    *,
    retried: bool,
    patience: float | None = None,
    retention: Mode = "keep",
) -> Written:
    """Write the batch. ``retried``: an earlier try may have been committed without our knowing.

    ``retention`` says what becomes of messages that are done. Where they cannot be deleted or
    archived, or a trigger suppresses it, they are kept: nothing waits for an archive.
    A row that is locked for longer than ``patience`` seconds (`PATIENCE` by default) does not
    hold up its neighbours, and one that the database refuses, or whose trigger fails, does not
    take them with it. What fails for every row, or has cost the connection, is raised and is the
    caller's to retry, with ``retried=True`` from then on.
    """
    wait = PATIENCE if patience is None else patience
    return await _Parts(db, retried=retried, patience=wait, retention=retention).write(batch)


class _Parts:
    """Writes a batch as a whole, and what fails in ever smaller parts."""

    def __init__(self, db: Database, *, retried: bool, patience: float, retention: Mode) -> None:
        self._db = db
        self._retried = retried
        self._patience = patience
        self._retention: Mode = retention
        self._left = FAILURES
        self._works_without_rows = False

    async def write(self, part: Sequence[Settled]) -> Written:
        try:
            leases = set(await self._send(part, self._patience))
        except LockNotAvailable as error:
            return await self._around_locked(part, error)
        except OperationalError as error:
            return await self._around_stuck(part, error)
        except DatabaseError as error:
            return await self._around_refused(part, error)
        written, missing = split(part, leases)
        self._left += bool(written)  # So it is not all of them.
        if missing and self._retention != "keep":
            return Written.only(written=written) + await self._suppressed(missing)
        if missing and self._retried:
            return await _explain(self._db, written, missing)
        return Written.only(written=written, lost=missing)

    async def _send(self, part: Sequence[Settled], patience: float) -> list[Any]:
        return await self._db.fetch(STATEMENTS[self._retention], parameters(part, patience))

    async def _around_locked(self, part: Sequence[Settled], error: LockNotAvailable) -> Written:
        leases = set(await self._db.fetch(LOCKED, _fences(part)))
        locked, rest = split(part, with_lanes(part, leases))
        if not locked:
            if self._retention != "keep":
                return await self._keeping(part, error)
            # A trigger waits for something else. One row after the other would wait as long.
            self._patience = 0.0
            return await self._around_stuck(part, error)
        result = Written.only(locked=locked)
        return result + await self.write(rest) if rest else result

    async def _around_stuck(self, part: Sequence[Settled], error: OperationalError) -> Written:
        if not error.sqlstate or error.sqlstate.startswith(("08", "57P")):
            raise error  # The connection is gone, which says nothing about any row.
        if self._retention != "keep":
            return await self._keeping(part, error)
        await self._try_without_rows()
        slow = [error] if isinstance(error, QueryCanceled) else []
        self._left -= CANCELED if slow else 1
        result = Written.only(canceled=slow)
        if len(part) > 1 and self._left >= 0:
            return result + await self._halves(part)
        result.stuck.extend(Refused(settled, _why(error)) for settled in part)
        return result

    async def _around_refused(self, part: Sequence[Settled], error: DatabaseError) -> Written:
        if self._retention != "keep":
            return await self._keeping(part, error)
        if not isinstance(error, (DataError, IntegrityError)):
            # Asked again for the last row: it is given up, and meanwhile all may have changed.
            self._works_without_rows &= len(part) > 1
            await self._try_without_rows()
        if len(part) > 1:
            return await self._halves(part)
        return Written.only(refused=[Refused(part[0], _why(error))])

    async def _keeping(self, part: Sequence[Settled], error: DatabaseError) -> Written:
        """Perhaps it is only that what is done cannot leave. From now on it stays."""
        self._retention = "keep"
        result = await self.write(part)
        if not (result.refused or result.stuck or result.canceled):
            result.kept.append(_why(error))
            if isinstance(error, QueryCanceled):
                result.canceled.append(error)
        return result

    async def _suppressed(self, missing: Sequence[Settled]) -> Written:
        """Lost, or held and not deleted after all: a trigger may do that without an error."""
        mode, self._retention = self._retention, "keep"
        result = await self.write(missing)
        if result.written:
            result.kept.append("a trigger of the outbox suppressed the delete")
        else:
            self._retention = mode
        return result

    async def _halves(self, part: Sequence[Settled]) -> Written:
        # The back first: of a lane, what is given back before the failure in front of it.
        middle = len(part) // 2
        back = await self.write(part[middle:])
        return await self.write(part[:middle]) + back

    async def _try_without_rows(self) -> None:
        """Raise what fails for no row at all, and so is not the fault of one.

        A trigger may raise anything; but so does a table that was renamed, or a standby.
        """
        if not self._works_without_rows:
            await self._send([], PATIENCE)
            self._works_without_rows = True


def _why(error: DatabaseError) -> str:
    # Not the whole error: its details may quote the row, payload and all.
    return f"{error.diag.message_primary or type(error).__name__} (SQLSTATE {error.sqlstate})"


async def _explain(db: Database, written: list[Settled], missing: list[Settled]) -> Written:
    rows = await db.fetch(EXPLAIN_UNWRITTEN, {"ids": bigints(s.message.id for s in missing)})
    found = {row_id: (version, status) for row_id, version, status in rows}
    result = Written.only(written=written)
    for settled in missing:
        version, status = found.get(settled.message.id, (None, None))
        if version is None:
            result.unknown.append(settled)
        elif version == settled.message.lease_version and status != "processing":
            result.already_written.append(settled)
        else:
            result.lost.append(settled)
    return result


def _fences(batch: Sequence[Settled]) -> dict[str, Any]:
    return {
        "ids": bigints(settled.message.id for settled in batch),
        "versions": bigints(settled.message.lease_version for settled in batch),
    }


def parameters(batch: Sequence[Settled], patience: float = PATIENCE) -> dict[str, Any]:
    """The batch as columns, and how many seconds to wait for the lock of one row."""
    rows = [as_row(settled) for settled in batch]
    return {
        **_fences(batch),
        "patience": f"{max(round(patience * 1000), 1)}ms",
        "statuses": plain([row.status for row in rows]),
        "delays": plain([row.delay for row in rows]),
        "refunds": plain([row.refund for row in rows]),
        "errors": [row.error for row in rows],
        "skips": plain([row.skipped for row in rows]),
    }


DONE = Row("done", None, 0, None)


def as_row(settled: Settled) -> Row:
    """What the transition means in columns. A dead row's available_at says since when."""
    match settled.transition:
        case Finish():
            return DONE
        case Retry(delay, error):
            return Row("pending", delay, 0, clean(error))
        case DeferUntil(delay, error):
            return Row("pending", delay, 1, clean(error))
        case Release(delay, error):
            return Row("pending", delay, 1, None if error is None else clean(error))
        case Bury(error, skipped):
            return Row("dead", 0.0, 0, clean(error), skipped)
        case _:
            assert_never(settled.transition)


def clean(error: str) -> str:
    """Text that PostgreSQL takes: no NUL, no lone surrogate, at most 2,000 characters."""
    text = error[:MAX_ERROR_CHARACTERS].replace("\x00", "\N{REPLACEMENT CHARACTER}")
    return text.encode("utf-8", "replace").decode("utf-8")
