"""What has no JSON form is refused with the exact path of the value."""

from __future__ import annotations

import math
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from enum import Enum
from typing import Any

import pytest

from pgoutbox import InvalidMessage
from pgoutbox.producer.payload import MAX_DEPTH, json_text


class Broken(Enum):
    VALUE = math.inf


@dataclass
class Line:
    price: object


class Stranger:
    def __repr__(self) -> str:
        raise RuntimeError


NAIVE = datetime(2026, 1, 2, tzinfo=UTC).replace(tzinfo=None)


def nested(*, levels: int) -> object:
    value: object = 1
    for _ in range(levels):
        value = [value]
    return value


@pytest.mark.parametrize(
    ("value", "path", "word"),
    [
        (math.nan, "payload", "nan"),
        ({"items": [0, 1, 2, {"price": -math.inf}]}, "payload.items[3].price", "-inf"),
        ({"d": Decimal("NaN")}, "payload.d", "NaN"),
        ({"d": Decimal("sNaN")}, "payload.d", "NaN"),
        ([Broken.VALUE], "payload[0]", "inf"),
        ({"items": [Line(b"x")]}, "payload.items[0].price", "base64"),
        ([bytearray(b"x")], "payload[0]", "base64"),
        ({"tags": {"a"}}, "payload.tags", "list"),
        ({"tags": frozenset("a")}, "payload.tags", "list"),
        ({"for": timedelta(1)}, "payload.for", "total_seconds"),
        ({"at": NAIVE}, "payload.at", "time zone"),
        ({"x": Stranger()}, "payload.x", "Stranger"),
        ({"x": Line}, "payload.x", "documented"),
        (iter([]), "payload", "documented"),
        ({"a": {5: 1}}, "payload.a", "key 5 of type int"),
        ({"a": {None: 1}}, "payload.a", "NoneType"),
        ({"a": {Stranger(): 1}}, "payload.a", "Stranger"),
        ("a\0b", "payload", "NUL character at position 1"),
        ({"a": ["\ud800"]}, "payload.a[0]", "U+D800"),
        ({"a": "\udc80"}, "payload.a", "U+DC80"),
        ({"k\0": 1}, "payload['k\\x00']", "key itself contains a NUL"),
        ({"\udfff": 1}, "payload['\\udfff']", "key itself contains the lone surrogate U+DFFF"),
        ({"two words": {"x-y": math.nan}}, "payload['two words']['x-y']", "nan"),
    ],
)
def test_the_error_names_the_path_and_the_problem(value: object, path: str, word: str) -> None:
    with pytest.raises(InvalidMessage) as refused:
        json_text(value)
    assert refused.value.path == path
    assert word in refused.value.problem
    assert str(refused.value).encode() == f"{path}: {refused.value.problem}".encode()


def test_an_integer_too_long_to_be_written_is_refused() -> None:
    for value in (10**4300, -(10**4300)):
        with pytest.raises(InvalidMessage, match="4300 digits") as refused:
            json_text([value])
        assert refused.value.path == "payload[0]"


@pytest.mark.parametrize("knot", ["list", "dict", "dataclass"])
def test_a_cycle_is_named_where_it_closes(knot: str) -> None:
    inner: Any = {"list": [], "dict": {}, "dataclass": Line(None)}[knot]
    if knot == "list":
        inner.append([inner])
    elif knot == "dict":
        inner["up"] = [inner]
    else:
        inner.price = [inner]
    path = {
        "list": "payload.a[0][0]",
        "dict": "payload.a.up[0]",
        "dataclass": "payload.a.price[0]",
    }[knot]
    with pytest.raises(InvalidMessage, match="contains itself") as refused:
        json_text({"a": inner})
    assert refused.value.path == path


def test_nesting_ends_at_a_stated_depth() -> None:
    with pytest.raises(InvalidMessage, match=f"more than {MAX_DEPTH} levels") as refused:
        json_text(nested(levels=MAX_DEPTH + 1))
    assert refused.value.path == "payload" + "[0]" * MAX_DEPTH


def test_nesting_without_end_is_refused_like_any_other() -> None:
    with pytest.raises(InvalidMessage, match="levels deep"):
        json_text(nested(levels=100_000))


def test_a_giant_key_is_shortened_in_the_path() -> None:
    with pytest.raises(InvalidMessage) as refused:
        json_text({"k" * 1_000_000: math.nan})
    assert len(refused.value.path) < 60
