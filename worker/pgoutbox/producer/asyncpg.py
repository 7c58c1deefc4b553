"""`enqueue` for asyncpg: in the transaction that the connection is in."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol, TypeVar

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
    import asyncpg
    from asyncpg.pool import PoolConnectionProxy
except ImportError as error:
    raise ImportError(
        "pgoutbox.producer.asyncpg needs asyncpg: pip install 'pgoutbox[asyncpg]'"
    ) from error

if TYPE_CHECKING:
    from collections.abc import Coroutine, Iterable
    from uuid import UUID

    from pgoutbox.message import Message

T = TypeVar("T")

# Everything but bytes and numbers is sent as text: a codec that the application has set for jsonb,
# uuid or timestamptz is then never asked. No RETURNING and no conflict target, and many ordered
# once more, for the reasons given beside psycopg's statements.
_INSERT = """
INSERT INTO outbox (message_id, destination, ordering_key, aggregate_type, aggregate_id,
                    event_type, content_type, dedup_key, headers, payload, body, available_at)
VALUES ($1::text::uuid, $2::text, $3::text, $4::text, $5::text, $6::text, $7::text, $8::text,
        $9::text::jsonb, $10::text::jsonb, $11::bytea,
        coalesce($12::text::timestamptz, now() + $13::bigint * interval '1 microsecond', now()))
"""

_INSERT_MANY = """
INSERT INTO outbox (message_id, destination, ordering_key, aggregate_type, aggregate_id,
                    event_type, content_type, dedup_key, headers, payload, body, available_at)
SELECT m.message_id::uuid, m.destination, m.ordering_key, m.aggregate_type, m.aggregate_id,
       m.event_type, m.content_type, m.dedup_key, m.headers::jsonb, m.payload::jsonb, m.body,
       coalesce(m.available_at::timestamptz, now() + m.delay * interval '1 microsecond', now())
  FROM unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::text[], $6::text[], $7::text[],
              $8::text[], $9::text[], $10::text[], $11::bytea[], $12::text[], $13::bigint[])
       WITH ORDINALITY
       AS m(message_id, destination, ordering_key, aggregate_type, aggregate_id, event_type,
            content_type, dedup_key, headers, payload, body, available_at, delay, position)
 ORDER BY m.position
"""

# One by one in the same order: the function tells a repeated dedup key from an id that is taken.
_INSERT_WITH_DEDUP_KEYS = """
SELECT count(outbox_enqueue(
           m.aggregate_type, m.aggregate_id, m.event_type, m.payload::jsonb, m.body,
           m.content_type, m.destination, m.headers::jsonb, m.ordering_key, m.dedup_key,
           CASE WHEN m.dedup_key IS NULL THEN m.message_id::uuid END,
           m.available_at::timestamptz, m.delay * interval '1 microsecond'))
  FROM (SELECT *
          FROM unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::text[], $6::text[],
                      $7::text[], $8::text[], $9::text[], $10::text[], $11::bytea[], $12::text[],
                      $13::bigint[])
               WITH ORDINALITY
               AS u(message_id, destination, ordering_key, aggregate_type, aggregate_id, event_type,
                    content_type, dedup_key, headers, payload, body, available_at, delay, position)
         ORDER BY u.position) m
"""


class Connection(Protocol):
    """An ``asyncpg.Connection``, or what a pool lends."""

    def is_in_transaction(self) -> bool:
        """As asyncpg's."""
        ...

    async def execute(self, query: str, /, *args: Any) -> str:  # noqa: ANN401 - as asyncpg's
        """As asyncpg's."""
        ...


def enqueue(
    conn: Connection,
    message: Message,
    *,
    max_payload_bytes: int = MAX_PAYLOAD_BYTES,
    allow_autocommit: bool = False,
) -> Coroutine[Any, Any, UUID]:
    """Insert the message in the connection's current transaction and return its message id.

    The message is checked at once, and the INSERT runs when the result is awaited. A ``dedup_key``
    that is still in the outbox inserts nothing and gives the same id.

    Raises `InvalidMessage` before any SQL runs, and `NotInTransaction` outside of a transaction
    unless ``allow_autocommit`` is set. ``max_payload_bytes`` counts the payload's bytes, or those
    of its JSON text in UTF-8.
    """
    _check_connection(conn, "enqueue", allow_autocommit=allow_autocommit)
    call = checked(message, max_payload_bytes=max_payload_bytes)
    [message_id] = call.ids
    return _run(conn, call, message_id)


def enqueue_many(
    conn: Connection,
    messages: Iterable[Message],
    *,
    max_payload_bytes: int = MAX_PAYLOAD_BYTES,
    allow_autocommit: bool = False,
) -> Coroutine[Any, Any, list[UUID]]:
    """Insert all messages, or none, by one statement; return their ids in the given order.

    Messages without an ordering key come first and keep their order. Lanes follow, sorted by
    destination and key so that two writers lock them in the same order; within a lane the given
    order is kept. Otherwise as `enqueue`; paths begin with the index, as in ``messages[57].``.
    """
    _check_connection(conn, "enqueue_many", allow_autocommit=allow_autocommit)
    call = checked_many(messages, max_payload_bytes=max_payload_bytes)
    return _run(conn, call, call.ids)


def _check_connection(conn: object, caller: str, *, allow_autocommit: bool) -> None:
    if not isinstance(conn, (asyncpg.Connection, PoolConnectionProxy)):
        kind = f"{type(conn).__module__}.{type(conn).__qualname__}"
        raise TypeError(
            f"{caller} needs an asyncpg Connection, not {kind}: the one that the business rows of "
            "the same transaction are written with; a pool lends one by pool.acquire()"
        )
    if not (allow_autocommit or conn.is_in_transaction()):
        raise NotInTransaction(
            f"{caller}: this connection is outside a transaction, where asyncpg commits each "
            "statement on its own, so the message would be committed apart from the business rows "
            "that it tells about. Put both into one `async with conn.transaction():` block, or "
            "pass allow_autocommit=True if there are no such rows"
        )


async def _run(conn: Connection, call: Checked, result: T) -> T:
    if not call.rows:
        return result
    columns = _columns(call)
    try:
        if call.keyed:
            await conn.execute(_INSERT_WITH_DEDUP_KEYS, *columns)
        elif len(call.rows) > 1:
            await conn.execute(_INSERT_MANY, *columns)
        else:  # which takes less than half the time for one
            await conn.execute(_INSERT, *(value for [value] in columns))
    except asyncpg.PostgresError as error:
        advise(error, error.sqlstate)
        raise
    return result


def _columns(call: Checked) -> list[list[Any]]:
    columns = dict(zip(Row._fields, call.columns(), strict=True))
    columns["message_id"] = list(map(str, columns["message_id"]))
    columns["available_at"] = [at and at.isoformat() for at in columns["available_at"]]
    return list(columns.values())
