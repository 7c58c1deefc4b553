"""`enqueue` for SQLAlchemy 2: sessions and connections, sync and async, of any PostgreSQL driver.

The message goes into the transaction that the session or connection is in, or begins as with any
other statement of theirs. Nothing is flushed and nothing is committed.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, TypeVar, overload

from pgoutbox.errors import NotInTransaction
from pgoutbox.producer.checked import (
    MAX_PAYLOAD_BYTES,
    Checked,
    advise,
    checked,
    checked_many,
)
from pgoutbox.producer.row import Row

try:
    import sqlalchemy as sa
    from sqlalchemy.exc import DBAPIError, UnboundExecutionError
    from sqlalchemy.orm import Session, scoped_session

    from pgoutbox.producer.sqlalchemy_statements import function, insert, insert_many
except ImportError as error:
    raise ImportError(
        "pgoutbox.producer.sqlalchemy needs SQLAlchemy 2: pip install 'pgoutbox[sqlalchemy]'"
    ) from error

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterable
    from typing import TypeAlias
    from uuid import UUID

    from sqlalchemy.ext.asyncio import AsyncConnection, AsyncSession, async_scoped_session

    from pgoutbox.message import Message

    Sync: TypeAlias = Session | scoped_session[Any] | sa.Connection
    Async: TypeAlias = AsyncSession | async_scoped_session[Any] | AsyncConnection

T = TypeVar("T")


@overload
def enqueue(
    target: Sync,
    message: Message,
    *,
    schema: str | None = ...,
    max_payload_bytes: int = ...,
    allow_autocommit: bool = ...,
) -> UUID: ...
@overload
def enqueue(
    target: Async,
    message: Message,
    *,
    schema: str | None = ...,
    max_payload_bytes: int = ...,
    allow_autocommit: bool = ...,
) -> Coroutine[Any, Any, UUID]: ...
def enqueue(
    target: Sync | Async,
    message: Message,
    *,
    schema: str | None = None,
    max_payload_bytes: int = MAX_PAYLOAD_BYTES,
    allow_autocommit: bool = False,
) -> UUID | Coroutine[Any, Any, UUID]:
    """Insert the message in the transaction of ``target`` and return its message id.

    ``target`` is a session or a connection. With an async one the message is checked at once, and
    the INSERT runs when the result is awaited. A ``dedup_key`` that is still in the outbox inserts
    nothing and gives the same id. ``schema`` is where the outbox is, if the role's search_path does
    not lead there.

    Raises `InvalidMessage` before any SQL runs, and `NotInTransaction` for the isolation level
    AUTOCOMMIT unless ``allow_autocommit`` is set. ``max_payload_bytes`` counts the payload's bytes,
    or those of its JSON text in UTF-8.
    """
    runs = _runner(target, "enqueue")
    call = checked(message, max_payload_bytes=max_payload_bytes)
    [message_id] = call.ids
    send = _Send("enqueue", call, schema=schema, allow_autocommit=allow_autocommit)
    return runs(send, message_id)


@overload
def enqueue_many(
    target: Sync,
    messages: Iterable[Message],
    *,
    schema: str | None = ...,
    max_payload_bytes: int = ...,
    allow_autocommit: bool = ...,
) -> list[UUID]: ...
@overload
def enqueue_many(
    target: Async,
    messages: Iterable[Message],
    *,
    schema: str | None = ...,
    max_payload_bytes: int = ...,
    allow_autocommit: bool = ...,
) -> Coroutine[Any, Any, list[UUID]]: ...
def enqueue_many(
    target: Sync | Async,
    messages: Iterable[Message],
    *,
    schema: str | None = None,
    max_payload_bytes: int = MAX_PAYLOAD_BYTES,
    allow_autocommit: bool = False,
) -> list[UUID] | Coroutine[Any, Any, list[UUID]]:
    """Insert all messages, or none, by one statement; return their ids in the given order.

    Messages without an ordering key come first and keep their order. Lanes follow, sorted by
    destination and key so that two writers lock them in the same order; within a lane the given
    order is kept. Otherwise as `enqueue`; paths begin with the index, as in ``messages[57].``.
    """
    runs = _runner(target, "enqueue_many")
    call = checked_many(messages, max_payload_bytes=max_payload_bytes)
    send = _Send("enqueue_many", call, schema=schema, allow_autocommit=allow_autocommit)
    return runs(send, call.ids)


class _Send:
    """The checked messages of one call, to be sent on the connection of the transaction."""

    def __init__(
        self, caller: str, call: Checked, *, schema: str | None, allow_autocommit: bool
    ) -> None:
        self._caller = caller
        self._call = call
        self._schema = schema
        self._allow_autocommit = allow_autocommit

    def __call__(self, target: Session | sa.Connection) -> None:
        conn = target if isinstance(target, sa.Connection) else _connection_of(target)
        _check_dialect(conn, self._caller)
        if not self._allow_autocommit:
            _check_transaction(conn, self._caller)
        if not self._call.rows:
            return
        columns: dict[str, Any] = dict(zip(Row._fields, self._call.columns(), strict=True))
        try:
            if self._call.keyed:
                conn.execute(function(self._schema), columns)
            elif len(self._call.rows) > 1:
                conn.execute(insert_many(self._schema), columns)
            else:  # which takes less than half the time for one
                conn.execute(insert(self._schema), self._call.rows[0]._asdict())
        except DBAPIError as error:
            # psycopg2 names it pgcode, the others sqlstate.
            advise(error, getattr(error.orig, "sqlstate", getattr(error.orig, "pgcode", None)))
            raise


def _runner(target: object, caller: str) -> Callable[[_Send, T], T | Coroutine[Any, Any, T]]:
    """What has the sender run with a sync session or connection, whatever was given."""
    if isinstance(target, scoped_session):
        target = target()
    if isinstance(target, (Session, sa.Connection)):
        return _now(target)
    # It needs greenlet, so it is not imported for applications that do without.
    asynchronous = sys.modules.get("sqlalchemy.ext.asyncio")
    if asynchronous is not None:
        if isinstance(target, asynchronous.async_scoped_session):
            target = target()
        if isinstance(target, (asynchronous.AsyncSession, asynchronous.AsyncConnection)):
            return _later(target)
    kind = f"{type(target).__module__}.{type(target).__qualname__}"
    raise TypeError(
        f"{caller} needs a Session, Connection, AsyncSession or AsyncConnection of SQLAlchemy, not "
        f"{kind}: the one that the business rows of the same transaction are written with"
    )


def _now(target: Session | sa.Connection) -> Callable[[_Send, T], T]:
    def run(send: _Send, result: T) -> T:
        send(target)
        return result

    return run


def _later(
    target: AsyncSession | AsyncConnection,
) -> Callable[[_Send, T], Coroutine[Any, Any, T]]:
    async def run(send: _Send, result: T) -> T:
        await target.run_sync(send)
        return result

    return run


def _connection_of(session: Session) -> sa.Connection:
    try:
        return session.connection()
    except UnboundExecutionError as error:
        error.add_note(
            "pgoutbox: this session has an engine for each of several models, or none. Pass the"
            " connection of the business rows, session.connection(bind_arguments={'mapper': Order})"
        )
        raise


def _check_dialect(conn: sa.Connection, caller: str) -> None:
    if conn.dialect.name != "postgresql":
        raise TypeError(f"{caller} needs a connection to PostgreSQL, not to {conn.dialect.name}")


def _check_transaction(conn: sa.Connection, caller: str) -> None:
    # Asked of the driver: the level may come from the engine, the connection or an event.
    if getattr(conn.connection.dbapi_connection, "autocommit", False):
        raise NotInTransaction(
            f"{caller}: this connection has the isolation level AUTOCOMMIT, so the message would "
            "be committed apart from the business rows that it tells about. Use an engine or "
            "execution_options with another isolation_level for both, or pass "
            "allow_autocommit=True if there are no such rows"
        )
