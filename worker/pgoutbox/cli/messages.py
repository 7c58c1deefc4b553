"""Messages as people write them: options, JSON lines, CSV."""

from __future__ import annotations

import contextlib
import csv
import json
import re
from dataclasses import fields
from datetime import datetime, timedelta
from decimal import Decimal, InvalidOperation
from typing import TYPE_CHECKING, Any, NamedTuple
from uuid import UUID

from pgoutbox.errors import PgOutboxError
from pgoutbox.message import Message
from pgoutbox.producer.payload import JsonText

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    Fields = dict[str, Any]

NAMES = tuple(field.name for field in fields(Message))
MAX_CELL = 64 * 1024 * 1024
"""Characters. Python's own limit is less than a payload may have."""
MAX_DIGITS = 131_072
"""Digits that PostgreSQL's numeric has before the point."""
MAX_SCALE = 16_383
"""And behind it."""
DECODER = json.JSONDecoder()
SPACE, COMMA, COLON = (re.compile(rf"\s*{mark}\s*") for mark in ("", ",?", ":"))
REQUIRED = ("aggregate_type", "aggregate_id", "event_type", "payload")


class BadInput(PgOutboxError, ValueError):  # noqa: N818 - reads better where it is raised
    """Something that was written is no message. Nothing was inserted."""


class Line(NamedTuple):
    """A message and the line it ends on."""

    number: int
    message: Message


def message_from(given: Mapping[str, Any]) -> Message:
    """A message from plain values: ``delay`` in seconds, ``available_at`` as ISO 8601 text.

    Raises `BadInput`. What pgoutbox.enqueue checks anyway is not checked here.
    """
    if unknown := [name for name in given if name not in NAMES]:
        raise BadInput(f"{unknown[0]!r} is no field of a message; there are {', '.join(NAMES)}")
    if missing := [name for name in REQUIRED if name not in given]:
        raise BadInput(f"{', '.join(missing)} missing")
    return Message(**{name: _converted(name, value) for name, value in given.items()})


def json_lines(lines: Iterable[str], defaults: Fields) -> Iterator[Line]:
    """One message per line that is not blank. Raises `BadInput` with the line's number."""
    for number, line in enumerate(lines, start=1):
        if line.strip():
            with _at_line(number):
                given = parsed_json(line)
                if not isinstance(given, dict):
                    raise BadInput("is no JSON object")
                if "payload" in given:
                    given["payload"] = JsonText(_payload_text(line), given["payload"])
                message = message_from(defaults | given)
            yield Line(number, message)


def csv_lines(lines: Iterable[str], defaults: Fields) -> Iterator[Line]:
    """One message per row below the header row. Raises `BadInput` with the line's number.

    ``payload`` and ``headers`` hold JSON. Without a column ``payload``, the columns that are no
    fields of a message are the payload, as strings. An empty cell counts as left out.
    """
    csv.field_size_limit(MAX_CELL)
    rows = csv.DictReader(lines, strict=True)
    while True:
        try:
            row = next(rows, None)
        except csv.Error as error:
            raise BadInput(f"line {rows.line_num + 1}: is no CSV: {error}") from None
        if row is None:
            return
        with _at_line(rows.line_num):
            message = message_from(defaults | _from_row(row))
        yield Line(rows.line_num, message)


def parsed_json(text: str) -> Any:  # noqa: ANN401 - any JSON value
    """Any JSON value, its numbers exact. Raises `BadInput`."""
    try:
        return json.loads(text, parse_float=_number)
    except BadInput:
        raise
    except (ValueError, RecursionError) as error:
        raise BadInput(f"is no JSON: {error}") from None


def _number(text: str) -> Decimal:
    with contextlib.suppress(InvalidOperation):  # an exponent beyond even Decimal's
        number = Decimal(text)
        if -MAX_SCALE <= number.adjusted() < MAX_DIGITS:
            return number
    raise BadInput(f"holds the number {text:.20}..., which PostgreSQL cannot store")


def json_payload(text: str) -> JsonText:
    """A payload from its JSON text, which is kept. Raises `BadInput`."""
    return JsonText(text.strip(), parsed_json(text))


def _payload_text(line: str) -> str:
    """The text of the last member ``payload`` of a valid JSON object."""
    found = ""
    at = line.index("{") + 1
    while line[at := _skip(line, at, SPACE)] != "}":
        at = _skip(line, at, COMMA)
        name, at = DECODER.raw_decode(line, at)
        at = _skip(line, at, COLON)
        _, end = DECODER.raw_decode(line, at)
        if name == "payload":
            found = line[at:end]
        at = end
    return found


def _skip(line: str, at: int, what: re.Pattern[str]) -> int:
    skipped = what.match(line, at)
    return at if skipped is None else skipped.end()


def _from_row(row: dict[str | None, Any]) -> Fields:
    if None in row:
        raise BadInput("has more cells than the header row")
    cells = {str(name): cell for name, cell in row.items() if cell not in {None, ""}}
    if "payload" in row:
        given = cells
    else:
        given = {name: cell for name, cell in cells.items() if name in NAMES}
        given["payload"] = {name: cell for name, cell in cells.items() if name not in NAMES}
    for name, read in (("payload", json_payload), ("headers", parsed_json)):
        if isinstance(given.get(name), str):
            given[name] = _named(name, read, given[name])
    return given


def _converted(name: str, value: Any) -> Any:  # noqa: ANN401 - plain values in, fields out
    if value is None or name not in CONVERSIONS:
        return value
    return _named(name, CONVERSIONS[name], value)


def _named(name: str, convert: Callable[[Any], Any], value: object) -> Any:  # noqa: ANN401
    try:
        return convert(value)
    except (ValueError, TypeError, OverflowError) as error:
        said = str(error) if isinstance(error, BadInput) else f"cannot be read: {error}"
        raise BadInput(f"{name} {said}") from None


def _seconds(value: object) -> timedelta:
    return timedelta(seconds=float(str(value)))


def _boolean(value: object) -> bool:
    if isinstance(value, bool):
        return value
    if value in {"true", "false"}:
        return value == "true"
    raise BadInput("is neither true nor false")


CONVERSIONS: dict[str, Callable[[Any], object]] = {
    "ordered": _boolean,
    "delay": _seconds,
    "available_at": datetime.fromisoformat,
    "message_id": UUID,
}


@contextlib.contextmanager
def _at_line(number: int) -> Iterator[None]:
    """Put the number of the line in front of what is wrong with it."""
    try:
        yield
    except BadInput as error:
        raise BadInput(f"line {number}: {error}") from None
