"""A checked message as the values of one row. No SQL and no driver here."""

from __future__ import annotations

import json
import re
from datetime import datetime, timedelta
from typing import NamedTuple, NoReturn
from uuid import UUID

from pgoutbox.errors import InvalidMessage
from pgoutbox.message import JSON_CONTENT_TYPE, Message
from pgoutbox.producer import ids, text
from pgoutbox.producer.headers import headers_text
from pgoutbox.producer.payload import json_text
from pgoutbox.producer.trace import Creation

MAX_NAME_BYTES = 512
MAX_DELAY = timedelta(days=36_525)  # 100 years; PostgreSQL's calendar ends, Python's delays do not

_DESTINATION = re.compile(r"[a-z][a-z0-9_]{0,39}")
_CONTENT_TYPE = re.compile(r"[\x20-\x7e]{1,255}")


class Row(NamedTuple):
    """The values in the order in which the INSERT statements name their columns."""

    message_id: UUID
    destination: str
    ordering_key: str | None
    aggregate_type: str
    aggregate_id: str
    event_type: str
    content_type: str
    dedup_key: str | None
    headers: str
    payload: str | None
    body: bytes | None
    available_at: datetime | None
    delay: int | None
    """Microseconds: an interval of days would bend with the session's daylight saving time."""


def row_of(message: object, *, max_payload_bytes: int) -> Row:
    """The row that this message becomes, or `InvalidMessage` with the path of what is wrong."""
    if not isinstance(message, Message):
        raise InvalidMessage("message", f"must be a pgoutbox.Message, not {type(message).__name__}")
    aggregate_type = _name(message.aggregate_type, "aggregate_type")
    aggregate_id = _name(message.aggregate_id, "aggregate_id")
    dedup_key = _optional_key(message.dedup_key, "dedup_key")
    payload, body = _payload(message.payload, max_payload_bytes)
    message_id = _message_id(message.message_id, dedup_key)
    destination = _destination(message.destination)
    return Row(
        message_id=message_id,
        destination=destination,
        ordering_key=_ordering_key(message, aggregate_type, aggregate_id),
        aggregate_type=aggregate_type,
        aggregate_id=aggregate_id,
        event_type=_name(message.event_type, "event_type"),
        content_type=_content_type(message.content_type, body),
        dedup_key=dedup_key,
        payload=payload,
        body=body,
        available_at=_available_at(message.available_at),
        delay=_delay(message.delay, message.available_at),
        # Last, since it may make a span: of a message that is refused there is none.
        headers=headers_text(message.headers, Creation(destination, message_id)),
    )


def weight(row: Row) -> int:
    """The bytes of the payload and the headers."""
    payload = len(row.body or b"") if row.payload is None else _byte_size(row.payload)
    return payload + _byte_size(row.headers)


def aggregate_key(aggregate_type: str, aggregate_id: str) -> str:
    """The ordering key of an aggregate: the same as by the SQL function outbox_aggregate_key.

    What precedes the first slash is the type, its own slashes and percent signs escaped, so no
    two aggregates share a key.
    """
    return f"{aggregate_type.replace('%', '%25').replace('/', '%2F')}/{aggregate_id}"


def _ordering_key(message: Message, aggregate_type: str, aggregate_id: str) -> str | None:
    if not isinstance(message.ordered, bool):
        raise InvalidMessage("ordered", f"must be a bool, not {type(message.ordered).__name__}")
    if not message.ordered:
        return _optional_key(message.ordering_key, "ordering_key")
    if message.ordering_key is not None:
        raise InvalidMessage("ordered", "not together with ordering_key; leave one out")
    key = aggregate_key(aggregate_type, aggregate_id)
    if (size := _byte_size(key)) > MAX_NAME_BYTES:
        raise InvalidMessage(
            "ordered",
            f"makes an ordering key of {size} bytes from aggregate_type and aggregate_id; at most "
            f"{MAX_NAME_BYTES} are allowed. Give a shorter ordering_key instead",
        )
    return key


def _name(value: object, name: str) -> str:
    return text.checked(value, name, max_bytes=MAX_NAME_BYTES)


def _optional_key(value: object, name: str) -> str | None:
    return None if value is None else _name(value, name)


def _message_id(given: object, dedup_key: str | None) -> UUID:
    if given is None:
        return ids.new_id() if dedup_key is None else ids.id_of_dedup_key(dedup_key)
    if dedup_key is not None:
        raise InvalidMessage(
            "message_id", "not together with dedup_key, from which the id is derived; leave one out"
        )
    if not isinstance(given, UUID):
        raise InvalidMessage("message_id", f"must be a uuid.UUID, not {type(given).__name__}")
    return given


def _destination(value: object) -> str:
    name = _name(value, "destination")
    if not _DESTINATION.fullmatch(name):
        raise InvalidMessage(
            "destination",
            f"{name[:60]!r} is no name of a destination: a lower-case letter, "
            "then lower-case letters, digits and _, 40 characters at most",
        )
    return name


def _payload(payload: object, max_bytes: int) -> tuple[str | None, bytes | None]:
    if isinstance(payload, bytes):
        _fits(len(payload), max_bytes)
        return None, payload
    encoded = json_text(payload)
    _fits(_byte_size(encoded), max_bytes)
    return encoded, None


def _byte_size(encoded: str) -> int:
    return len(encoded) if encoded.isascii() else len(encoded.encode())


def _fits(size: int, max_bytes: int) -> None:
    if size > max_bytes:
        raise InvalidMessage(
            "payload",
            f"has {size} bytes; at most {max_bytes} are allowed. Store it elsewhere and send a "
            "reference, or raise max_payload_bytes if the destination takes more",
        )


def _content_type(given: object, body: bytes | None) -> str:
    if given is None:
        if body is not None:
            _expect_json(body)
        return JSON_CONTENT_TYPE
    content_type = text.checked(given, "content_type", max_bytes=255)
    if not _CONTENT_TYPE.fullmatch(content_type):
        raise InvalidMessage("content_type", "must be of printable ASCII characters")
    return content_type


def _expect_json(body: bytes) -> None:
    try:
        json.loads(body.decode(), parse_constant=_no_constant)
    except (ValueError, RecursionError):
        raise InvalidMessage(
            "content_type",
            f"is needed, since these bytes are not JSON and the default is {JSON_CONTENT_TYPE}",
        ) from None


def _no_constant(name: str) -> NoReturn:
    raise ValueError(name)


def _available_at(value: object) -> datetime | None:
    if value is None:
        return None
    if not isinstance(value, datetime):
        raise InvalidMessage("available_at", f"must be a datetime, not {type(value).__name__}")
    if value.utcoffset() is None:
        raise InvalidMessage(
            "available_at", "has no time zone; make it aware, e.g. with datetime.now(tz=UTC)"
        )
    return value


def _delay(value: object, available_at: datetime | None) -> int | None:
    if value is None:
        return None
    if available_at is not None:
        raise InvalidMessage("delay", "not together with available_at; leave one out")
    if not isinstance(value, timedelta):
        raise InvalidMessage("delay", f"must be a timedelta, not {type(value).__name__}")
    if value < timedelta():
        raise InvalidMessage("delay", f"is negative ({value})")
    if value > MAX_DELAY:
        raise InvalidMessage("delay", f"is longer than 100 years ({value})")
    return value // timedelta(microseconds=1)
