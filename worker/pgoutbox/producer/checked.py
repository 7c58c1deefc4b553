"""What every producer does before its statement, whatever driver runs that. No driver here."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, NamedTuple

from pgoutbox.errors import InvalidMessage
from pgoutbox.producer.row import Row, row_of, weight

if TYPE_CHECKING:
    from uuid import UUID

    from pgoutbox.message import Message

MAX_PAYLOAD_BYTES = 1024 * 1024
"""The default: more than this is refused by Kafka, NATS and others as they come."""
MAX_PAYLOAD_BYTES_EVER = 32 * 1024 * 1024
"""A jsonb value is up to six times as large as its text, and ends at 256 MiB."""
MAX_CALL_BYTES = 256 * 1024 * 1024
"""Payloads and headers of one call: on the wire up to twice as large, and that ends at 1 GiB."""

ADVICE = {
    "40P01": "pgoutbox: retry the whole transaction. Two that enter the same ordering keys in"
    " opposite orders end like this; one enqueue_many for all messages of a transaction avoids it",
    "53200": "pgoutbox: each ordering key of a transaction takes a place in the server's lock"
    " table. Enqueue fewer of them in one transaction, or raise max_locks_per_transaction",
}
"""By SQLSTATE: a deadlock, and no shared memory left."""


class Checked(NamedTuple):
    """Messages that nothing is wrong with, as the rows that they become."""

    ids: list[UUID]
    """In the order in which the messages were given."""
    rows: list[Row]
    """In the order in which they are to be inserted: lanes last, and always in the same order, so
    that two writers lock them alike."""
    keyed: bool
    """One has a dedup key: then all go through the function ``outbox_enqueue``, which tells a
    repeated dedup key from an id that is taken, as a plain INSERT cannot without more rights."""

    def columns(self) -> list[list[Any]]:
        """The values by columns, for ``unnest``."""
        return [list(column) for column in zip(*self.rows, strict=True)]


def checked(message: Message, *, max_payload_bytes: int) -> Checked:
    """One message, or `InvalidMessage`, or ``ValueError`` for the limit itself."""
    _check_limit(max_payload_bytes)
    row = row_of(message, max_payload_bytes=max_payload_bytes)
    return Checked([row.message_id], [row], row.dedup_key is not None)


def checked_many(messages: Iterable[Message], *, max_payload_bytes: int) -> Checked:
    """All messages of a call; as `checked`, and paths begin with the index of the message."""
    _check_limit(max_payload_bytes)
    rows = _rows(messages, max_payload_bytes)
    return Checked(
        [row.message_id for row in rows],
        sorted(rows, key=_lane),
        any(row.dedup_key is not None for row in rows),
    )


def advise(error: BaseException, sqlstate: object) -> None:
    """Say what to do about what lanes bring with them, where the traceback is read."""
    if isinstance(sqlstate, str) and (advice := ADVICE.get(sqlstate)):
        error.add_note(advice)


def _rows(messages: Iterable[Message], max_payload_bytes: int) -> list[Row]:
    if not isinstance(messages, Iterable):
        raise InvalidMessage(
            "messages", f"must be an iterable of messages, not {type(messages).__name__}"
        )
    rows: list[Row] = []
    total = 0
    for index, message in enumerate(messages):
        row = _row_at(index, message, max_payload_bytes)
        total += weight(row)
        if total > MAX_CALL_BYTES:
            raise InvalidMessage(
                f"messages[{index}]",
                "brings the payloads and headers of this call to more than "
                f"{MAX_CALL_BYTES} bytes; split the call",
            )
        rows.append(row)
    return rows


def _row_at(index: int, message: Message, max_payload_bytes: int) -> Row:
    try:
        return row_of(message, max_payload_bytes=max_payload_bytes)
    except InvalidMessage as error:
        here = f"messages[{index}]"
        path = here if error.path == "message" else f"{here}.{error.path}"
        raise InvalidMessage(path, error.problem) from None


def _lane(row: Row) -> tuple[str, str]:
    return ("", "") if row.ordering_key is None else (row.destination, row.ordering_key)


def _check_limit(max_payload_bytes: int) -> None:
    if not 0 < max_payload_bytes <= MAX_PAYLOAD_BYTES_EVER:
        raise ValueError(f"max_payload_bytes must be from 1 to {MAX_PAYLOAD_BYTES_EVER}")
