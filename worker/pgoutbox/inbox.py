"""The consumer's side: a message that is delivered again has its effect once.

The receipt is inserted before the handler runs, in the transaction of what the handler
writes. Both are committed or neither is, and of two deliveries at the same moment the second
waits at the receipt's primary key until the first has ended.
"""

from __future__ import annotations

from contextlib import (
    AbstractAsyncContextManager,
    AbstractContextManager,
    asynccontextmanager,
    contextmanager,
)
from datetime import timedelta
from typing import TYPE_CHECKING, Any, overload
from uuid import UUID

import psycopg
from psycopg.pq import PipelineStatus

from pgoutbox.errors import PgOutboxError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Coroutine, Iterator

MAX_CONSUMER_BYTES = 255
_OLDEST = timedelta(days=36_525)  # 100 years

# No RETURNING and no conflict target: the right to INSERT is enough.
_RECEIVE = "INSERT INTO outbox_inbox (consumer, message_id) VALUES (%s, %s) ON CONFLICT DO NOTHING"

# A receipt is never updated, so its ctid stays true between the two scans, and rows that another
# prune holds are skipped. Microseconds: an interval of days bends with daylight saving time.
_PRUNE = """
DELETE FROM outbox_inbox
 WHERE ctid = ANY (ARRAY(
       SELECT ctid FROM outbox_inbox
        WHERE received_at < now() - %s::bigint * interval '1 microsecond'
        ORDER BY received_at LIMIT %s
          FOR UPDATE SKIP LOCKED))
"""


@overload
def first_time(
    conn: psycopg.Connection[Any], consumer: str, message_id: UUID | str
) -> AbstractContextManager[bool]: ...
@overload
def first_time(
    conn: psycopg.AsyncConnection[Any], consumer: str, message_id: UUID | str
) -> AbstractAsyncContextManager[bool]: ...
def first_time(
    conn: psycopg.Connection[Any] | psycopg.AsyncConnection[Any],
    consumer: str,
    message_id: UUID | str,
) -> AbstractContextManager[bool] | AbstractAsyncContextManager[bool]:
    """A transaction around a consumer's handler that knows whether the message is new.

    ``with first_time(...) as fresh`` (``async with`` for an ``AsyncConnection``) inserts the
    receipt; ``fresh`` is False when ``consumer`` already has one for this message. Inside a
    transaction of the caller's it is a savepoint, else a transaction of its own. An exception
    in the block rolls both the receipt and the handler's writes back.

    Raises ``ValueError`` for a consumer's name that is not 1 to 255 bytes of storable text, or
    for a message id that is no UUID.
    """
    _check_connection(conn, "first_time")
    receipt = (_consumer(consumer), _uuid(message_id))
    if isinstance(conn, psycopg.AsyncConnection):
        return _first_time_async(conn, receipt)
    return _first_time(conn, receipt)


@contextmanager
def _first_time(conn: psycopg.Connection[Any], receipt: tuple[str, UUID]) -> Iterator[bool]:
    with conn.transaction():
        yield psycopg.Cursor(conn).execute(_RECEIVE, receipt).rowcount == 1


@asynccontextmanager
async def _first_time_async(
    conn: psycopg.AsyncConnection[Any], receipt: tuple[str, UUID]
) -> AsyncIterator[bool]:
    async with conn.transaction():
        cursor = await psycopg.AsyncCursor(conn).execute(_RECEIVE, receipt)
        yield cursor.rowcount == 1


@overload
def prune_receipts(
    conn: psycopg.Connection[Any], older_than: timedelta, *, limit: int = ...
) -> int: ...
@overload
def prune_receipts(
    conn: psycopg.AsyncConnection[Any], older_than: timedelta, *, limit: int = ...
) -> Coroutine[Any, Any, int]: ...
def prune_receipts(
    conn: psycopg.Connection[Any] | psycopg.AsyncConnection[Any],
    older_than: timedelta,
    *,
    limit: int = 10_000,
) -> int | Coroutine[Any, Any, int]:
    """Delete the oldest receipts, ``limit`` at most; return how many went.

    One statement in the caller's transaction. Call it again, in a new transaction, while it
    returns ``limit``. Ages are by the database's clock. ``older_than`` must be longer than a
    message can be delivered again after its first delivery, else its effect happens twice.
    """
    _check_connection(conn, "prune_receipts")
    if not timedelta() < older_than <= _OLDEST:
        raise ValueError("older_than must be positive and at most 100 years")
    if limit < 1:
        raise ValueError("limit must be at least 1")
    values = (older_than // timedelta(microseconds=1), limit)
    if isinstance(conn, psycopg.AsyncConnection):
        return _prune_async(conn, values)
    return psycopg.Cursor(conn).execute(_PRUNE, values).rowcount


async def _prune_async(conn: psycopg.AsyncConnection[Any], values: tuple[int, int]) -> int:
    cursor = await psycopg.AsyncCursor(conn).execute(_PRUNE, values)
    return cursor.rowcount


def _check_connection(conn: object, caller: str) -> None:
    if not isinstance(conn, (psycopg.Connection, psycopg.AsyncConnection)):
        kind = f"{type(conn).__module__}.{type(conn).__qualname__}"
        raise TypeError(f"{caller} needs a psycopg Connection or AsyncConnection, not {kind}")
    # In a pipeline the answer arrives after the handler has run; -1 rows would read as "seen".
    if conn.pgconn.pipeline_status != PipelineStatus.OFF:
        raise PgOutboxError(f"{caller} cannot run inside conn.pipeline(): leave the pipeline first")


def _consumer(name: str) -> str:
    if not isinstance(name, str):
        raise TypeError(f"consumer must be a str, not {type(name).__name__}")
    try:
        size = len(name.encode())
    except UnicodeEncodeError:
        raise ValueError("consumer contains a lone surrogate, which cannot be stored") from None
    if not 0 < size <= MAX_CONSUMER_BYTES or "\0" in name:
        raise ValueError(f"consumer must be 1 to {MAX_CONSUMER_BYTES} bytes without NUL")
    return name


def _uuid(message_id: UUID | str) -> UUID:
    if isinstance(message_id, UUID):
        return message_id
    try:
        return UUID(message_id)
    except (ValueError, AttributeError, TypeError):
        raise ValueError(f"message_id must be a UUID, not {message_id!r}") from None
