"""A payload becomes JSON text once, here, and is passed on unparsed from then on.

The objects are checked, not the text: in the text a NUL is already written as an escape, and
looks like a string that talks about that escape.
"""

from __future__ import annotations

import json
import math
import reprlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, is_dataclass
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from types import NoneType
from typing import Any
from uuid import UUID

from pgoutbox.errors import InvalidMessage
from pgoutbox.producer.text import unstorable

MAX_DEPTH = 100
"""Levels of nesting. More is a mistake, or breaks the consumer's parser."""

_INTEGER_LIMIT = 10**4300  # as many digits as Python writes
_PLAIN_KEY_LENGTH = 40

_encode = json.JSONEncoder(
    ensure_ascii=False, allow_nan=False, check_circular=False, separators=(",", ":")
).encode


@dataclass(frozen=True, slots=True)
class JsonText:
    """A payload that is JSON text already, passed on as written: numbers keep their digits."""

    text: str
    parsed: object
    """What it says, to be checked as any payload is; its floats may be Decimal."""


def json_text(payload: object) -> str:
    """The payload's JSON text.

    Raises `InvalidMessage` with the path of the first value that has no JSON form.
    """
    if isinstance(payload, JsonText):
        _Walk().plain(payload.parsed)
        return payload.text
    return _encode(_Walk().plain(payload))


class _Walk:
    """One walk through a payload: where it is, and which containers it is inside of."""

    __slots__ = ("inside", "trail")

    def __init__(self) -> None:
        self.trail: list[str | int] = []
        self.inside: set[int] = set()

    def plain(self, value: object) -> object:
        """The value in terms of what ``json`` knows."""
        form = _EXACT.get(type(value)) or _form_of(value)
        if form is None:
            raise self.refused(f"is a {type(value).__name__}, {_advice(value)}")
        return form(self, value)

    def enter(self, container: object) -> None:
        if id(container) in self.inside:
            raise self.refused("contains itself")
        if len(self.inside) >= MAX_DEPTH:
            raise self.refused(f"is nested more than {MAX_DEPTH} levels deep")
        self.inside.add(id(container))

    def leave(self, container: object) -> None:
        self.inside.discard(id(container))

    def refused(self, problem: str) -> InvalidMessage:
        return InvalidMessage("payload" + "".join(map(_step, self.trail)), problem)


def _step(key: str | int) -> str:
    if isinstance(key, int):
        return f"[{key}]"
    if key.isascii() and key.isidentifier() and len(key) <= _PLAIN_KEY_LENGTH:
        return f".{key}"
    return f"[{reprlib.repr(key)}]"


def _as_is(_walk: _Walk, value: object) -> object:
    return value


def _string(walk: _Walk, value: str) -> str:
    if value.isascii() and "\0" not in value:  # half of all values; spares them a call
        return value
    if why := unstorable(value):
        raise walk.refused(why)
    return value


def _integer(walk: _Walk, value: int) -> int:
    if not -_INTEGER_LIMIT < value < _INTEGER_LIMIT:
        raise walk.refused("is an integer of more than 4300 digits")
    return value


def _float(walk: _Walk, value: float) -> float:
    if not math.isfinite(value):
        raise walk.refused(f"is {value!r}, which JSON does not have")
    return value


def _decimal(walk: _Walk, value: Decimal) -> str:
    if not value.is_finite():
        raise walk.refused(f"is Decimal {value}, which is not a finite number")
    return str(value)


def _datetime(walk: _Walk, value: datetime) -> str:
    if value.utcoffset() is None:
        raise walk.refused("is a datetime without a time zone; make it aware, e.g. with tz=UTC")
    return value.isoformat()


def _iso(_walk: _Walk, value: date | time) -> str:
    return value.isoformat()


def _uuid(_walk: _Walk, value: UUID) -> str:
    return str(value)


def _enum(walk: _Walk, value: Enum) -> object:
    return walk.plain(value.value)


def _mapping(walk: _Walk, value: Mapping[object, object]) -> dict[str, object]:
    walk.enter(value)
    plain: dict[str, object] = {}
    trail = walk.trail
    trail.append("")
    for key, item in value.items():
        if not isinstance(key, str):
            trail.pop()
            raise walk.refused(
                f"has the key {reprlib.repr(key)} of type {type(key).__name__}; "
                "keys of JSON objects are strings"
            )
        trail[-1] = key
        if why := unstorable(key):
            raise walk.refused(f"the key itself {why}")
        plain[key] = walk.plain(item)
    trail.pop()
    walk.leave(value)
    return plain


def _sequence(walk: _Walk, value: list[object] | tuple[object, ...]) -> list[object]:
    walk.enter(value)
    plain = []
    trail = walk.trail
    trail.append(0)
    for index, item in enumerate(value):
        trail[-1] = index
        plain.append(walk.plain(item))
    trail.pop()
    walk.leave(value)
    return plain


def _dataclass(walk: _Walk, value: Any) -> dict[str, object]:  # noqa: ANN401 - any dataclass
    walk.enter(value)
    plain = {}
    for field in fields(value):
        walk.trail.append(field.name)
        plain[field.name] = walk.plain(getattr(value, field.name))
        walk.trail.pop()
    walk.leave(value)
    return plain


_Form = Callable[[_Walk, Any], object]

_EXACT: dict[type, _Form] = {
    NoneType: _as_is,
    bool: _as_is,
    str: _string,
    int: _integer,
    float: _float,
    dict: _mapping,
    list: _sequence,
    tuple: _sequence,
    Decimal: _decimal,
    datetime: _datetime,
    date: _iso,
    time: _iso,
    UUID: _uuid,
}

# The first that fits: an enum may be a str, and a datetime is a date.
_BASES: tuple[tuple[type, _Form], ...] = (
    (Enum, _enum),
    (str, _string),
    (int, _integer),
    (float, _float),
    (Mapping, _mapping),
    (list, _sequence),
    (tuple, _sequence),
    (Decimal, _decimal),
    (datetime, _datetime),
    (date, _iso),
    (time, _iso),
    (UUID, _uuid),
)


def _form_of(value: object) -> _Form | None:
    for base, form in _BASES:
        if isinstance(value, base):
            return form
    if is_dataclass(value) and not isinstance(value, type):
        return _dataclass
    return None


def _advice(value: object) -> str:
    if isinstance(value, (set, frozenset)):
        return "which has no order; make it a list, sorted if you can"
    if isinstance(value, (bytes, bytearray, memoryview)):
        return (
            "which JSON does not have; encode it (base64), "
            "or give bytes as the whole payload with a content_type"
        )
    if isinstance(value, timedelta):
        return "which has no agreed JSON form; use total_seconds()"
    return "which has no documented JSON form; turn it into a dict, list, str or number first"
