"""Messages enter the outbox in the transaction of the business rows that they tell about.

Each call checks everything first and then runs one statement on the connection that it was
given. It never commits, begins, or looks for another connection.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, LiteralString, TypeVar, overload

import psycopg
from psycopg.pq import TransactionStatus

from pgoutbox.errors import NotInTransaction
from pgoutbox.producer.checked import MAX_PAYLOAD_BYTES, advise, checked, checked_many

if TYPE_CHECKING:
    from collections.abc import Coroutine, Iterable, Sequence
    from uuid import UUID

    from pgoutbox.message import Message

T = TypeVar("T")

# No ON CONFLICT: without a target it would also pass over a row whose id is taken, as after the
# sequence was set back, and the message would be lost in silence. No RETURNING and no target:
# either would need the right to SELECT.
_INSERT = """
INSERT INTO outbox (message_id, destination, ordering_key, aggregate_type, aggregate_id,
                    event_type, content_type, dedup_key, headers, payload, body, available_at)
VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s::jsonb, %s::jsonb, %s::bytea,
        coalesce(%s::timestamptz, now() + %s::bigint * interval '1 microsecond', now()))
"""

# The rows arrive sorted; saying so again keeps the planner from choosing another order, and with
# it another order of the lanes' locks.
_INSERT_MANY = """
INSERT INTO outbox (message_id, destination, ordering_key, aggregate_type, aggregate_id,
                    event_type, content_type, dedup_key, headers, payload, body, available_at)
SELECT m.message_id, m.destination, m.ordering_key, m.aggregate_type, m.aggregate_id,
       m.event_type, m.content_type, m.dedup_key, m.headers::jsonb, m.payload::jsonb, m.body,
       coalesce(m.available_at, now() + m.delay * interval '1 microsecond', now())
  FROM unnest(%s::uuid[], %s::text[], %s::text[], %s::text[], %s::text[], %s::text[], %s::text[],
              %s::text[], %s::text[], %s::text[], %s::bytea[], %s::timestamptz[], %s::bigint[])
       WITH ORDINALITY
       AS m(message_id, destination, ordering_key, aggregate_type, aggregate_id, event_type,
            content_type, dedup_key, headers, payload, body, available_at, delay, position)
 ORDER BY m.position
"""

# One by one in the same order: the function tells a repeated dedup key from an id that is taken,
# and rows without a key keep their places among those with one. Counted, to send no ids back.
_INSERT_WITH_DEDUP_KEYS = """
SELECT count(outbox_enqueue(
           m.aggregate_type, m.aggregate_id, m.event_type, m.payload::jsonb, m.body,
           m.content_type, m.destination, m.headers::jsonb, m.ordering_key, m.dedup_key,
           CASE WHEN m.dedup_key IS NULL THEN m.message_id END, m.available_at,
           m.delay * interval '1 microsecond'))
  FROM (SELECT *
          FROM unnest(%s::uuid[], %s::text[], %s::text[], %s::text[], %s::text[], %s::text[],
                      %s::text[], %s::text[], %s::text[], %s::text[], %s::bytea[],
                      %s::timestamptz[], %s::bigint[])
               WITH ORDINALITY
               AS u(message_id, destination, ordering_key, aggregate_type, aggregate_id, event_type,
                    content_type, dedup_key, headers, payload, body, available_at, delay, position)
         ORDER BY u.position) m
"""


@overload
def enqueue(
    conn: psycopg.Connection[Any],
    message: Message,
    *,
    max_payload_bytes: int = ...,
    allow_autocommit: bool = ...,
) -> UUID: ...
@overload
def enqueue(
    conn: psycopg.AsyncConnection[Any],
    message: Message,
    *,
    max_payload_bytes: int = ...,
    allow_autocommit: bool = ...,
) -> Coroutine[Any, Any, UUID]: ...
def enqueue(
    conn: psycopg.Connection[Any] | psycopg.AsyncConnection[Any],
    message: Message,
    *,
    max_payload_bytes: int = MAX_PAYLOAD_BYTES,
    allow_autocommit: bool = False,
) -> UUID | Coroutine[Any, Any, UUID]:
    """Insert the message in the connection's current transaction and return its message id.

    With an ``AsyncConnection`` the message is checked at once, and the INSERT runs when the
    result is awaited. A ``dedup_key`` that is still in the outbox inserts nothing and gives the
    same id.

    Raises `InvalidMessage` before any SQL runs, and `NotInTransaction` for a connection in
    autocommit mode outside a transaction block unless ``allow_autocommit`` is set.
    ``max_payload_bytes`` counts the payload's bytes, or those of its JSON text in UTF-8.
    """
    _check_connection(conn, "enqueue", allow_autocommit=allow_autocommit)
    call = checked(message, max_payload_bytes=max_payload_bytes)
    [message_id], [row], keyed = call
    statement = _INSERT_WITH_DEDUP_KEYS if keyed else _INSERT
    values: Sequence[Any] = call.columns() if keyed else row
    if isinstance(conn, psycopg.AsyncConnection):
        return _run_async(conn, statement, values, message_id)
    _run(conn, statement, values)
    return message_id


@overload
def enqueue_many(
    conn: psycopg.Connection[Any],
    messages: Iterable[Message],
    *,
    max_payload_bytes: int = ...,
    allow_autocommit: bool = ...,
) -> list[UUID]: ...
@overload
def enqueue_many(
    conn: psycopg.AsyncConnection[Any],
    messages: Iterable[Message],
    *,
    max_payload_bytes: int = ...,
    allow_autocommit: bool = ...,
) -> Coroutine[Any, Any, list[UUID]]: ...
def enqueue_many(
    conn: psycopg.Connection[Any] | psycopg.AsyncConnection[Any],
    messages: Iterable[Message],
    *,
    max_payload_bytes: int = MAX_PAYLOAD_BYTES,
    allow_autocommit: bool = False,
) -> list[UUID] | Coroutine[Any, Any, list[UUID]]:
    """Insert all messages, or none, by one statement; return their ids in the given order.

    Messages without an ordering key come first and keep their order. Lanes follow, sorted by
    destination and key so that two writers lock them in the same order; within a lane the given
    order is kept. Otherwise as `enqueue`; paths begin with the index, as in ``messages[57].``.
    """
    _check_connection(conn, "enqueue_many", allow_autocommit=allow_autocommit)
    call = checked_many(messages, max_payload_bytes=max_payload_bytes)
    statement = _INSERT_WITH_DEDUP_KEYS if call.keyed else _INSERT_MANY
    if isinstance(conn, psycopg.AsyncConnection):
        return _run_async(conn, statement, call.columns(), call.ids)
    _run(conn, statement, call.columns())
    return call.ids


def _check_connection(conn: object, caller: str, *, allow_autocommit: bool) -> None:
    if not isinstance(conn, (psycopg.Connection, psycopg.AsyncConnection)):
        kind = f"{type(conn).__module__}.{type(conn).__qualname__}"
        raise TypeError(
            f"{caller} needs a psycopg Connection or AsyncConnection, not {kind}; for "
            "SQLAlchemy, Django and asyncpg there are modules of these names in pgoutbox.producer, "
            "and anything else that speaks SQL can call the function outbox_enqueue"
        )
    idle = conn.pgconn.transaction_status == TransactionStatus.IDLE
    if conn.autocommit and idle and not allow_autocommit:
        raise NotInTransaction(
            f"{caller}: this connection is in autocommit mode and outside a transaction, so the "
            "message would be committed apart from the business rows that it tells about. Put "
            "both into one `with conn.transaction():` block, or pass allow_autocommit=True if "
            "there are no such rows"
        )


# Cursors of psycopg's own classes: the connection's cursor factory may make some that read
# placeholders differently.
def _run(conn: psycopg.Connection[Any], statement: LiteralString, values: Sequence[Any]) -> None:
    if values:
        try:
            psycopg.Cursor(conn).execute(statement, values)
        except psycopg.Error as error:
            advise(error, error.sqlstate)
            raise


async def _run_async(
    conn: psycopg.AsyncConnection[Any], statement: LiteralString, values: Sequence[Any], result: T
) -> T:
    if values:
        try:
            await psycopg.AsyncCursor(conn).execute(statement, values)
        except psycopg.Error as error:
            advise(error, error.sqlstate)
            raise
    return result
