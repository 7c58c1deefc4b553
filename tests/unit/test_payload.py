"""Which Python values have a JSON form, and which one."""

from __future__ import annotations

import json
from collections import OrderedDict
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from enum import Enum, IntEnum, StrEnum
from types import MappingProxyType
from typing import NamedTuple, Self
from uuid import UUID
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, strategies as st

from pgoutbox.producer.payload import MAX_DEPTH, json_text


class Colour(Enum):
    RED = "red"
    PRICED = Decimal("1.10")


class Size(StrEnum):
    SMALL = "s"


class Level(IntEnum):
    HIGH = 3


class Odd(StrEnum):
    """A str whose own text is not its value."""

    ONE = ("text", "value")

    def __new__(cls, text: str, value: str) -> Self:
        member = str.__new__(cls, text)
        member._value_ = value
        return member


class Text(str):
    __slots__ = ()

    def __str__(self) -> str:
        return "something else"


class Count(int):
    def __repr__(self) -> str:
        return "something else"


class Point(NamedTuple):
    x: int
    y: int


@dataclass
class Line:
    sku: str
    price: Decimal


@dataclass(frozen=True, slots=True)
class Order:
    lines: tuple[Line, ...]
    at: datetime


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "null"),
        (True, "true"),
        ("é", '"é"'),
        (1.5, "1.5"),
        (UUID("0190B9C0-0000-7000-8000-00000000ABCD"), '"0190b9c0-0000-7000-8000-00000000abcd"'),
        (datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC), '"2026-01-02T03:04:05+00:00"'),
        (
            datetime(2026, 7, 2, 3, 4, 5, 6, tzinfo=ZoneInfo("Europe/Berlin")),
            '"2026-07-02T03:04:05.000006+02:00"',
        ),
        (date(2026, 1, 2), '"2026-01-02"'),
        (time(3, 4, 5), '"03:04:05"'),
        (time(3, 4, tzinfo=timezone(timedelta(hours=1))), '"03:04:00+01:00"'),
        (Decimal("0.10"), '"0.10"'),
        (Decimal("0.1234567890123456789012345678901234567890"), None),
        (Colour.RED, '"red"'),
        (Colour.PRICED, '"1.10"'),
        (Size.SMALL, '"s"'),
        (Level.HIGH, "3"),
        (Odd.ONE, '"value"'),
        (Text("own"), '"own"'),
        (Count(7), "7"),
        (Point(1, 2), "[1,2]"),
        ((1, [2, ()]), "[1,[2,[]]]"),
        (MappingProxyType({"a": 1}), '{"a":1}'),
        (OrderedDict(b=1, a=2), '{"b":1,"a":2}'),
        ({Size.SMALL: 1, Text("k"): 2}, '{"s":1,"k":2}'),
        (
            Order((Line("x", Decimal(1)),), datetime(2026, 1, 2, tzinfo=UTC)),
            '{"lines":[{"sku":"x","price":"1"}],"at":"2026-01-02T00:00:00+00:00"}',
        ),
    ],
)
def test_each_documented_type_has_one_text_form(value: object, text: str | None) -> None:
    assert json_text(value) == (text or f'"{value}"')


def test_a_huge_integer_keeps_every_digit() -> None:
    assert json_text({"n": 12345678901234567890123}) == '{"n":12345678901234567890123}'
    assert json_text(10**4299) == "1" + "0" * 4299


def test_text_that_talks_about_an_escape_is_no_nul() -> None:
    assert json.loads(json_text({"\\u0000": "\\u0000 \\ud800"})) == {"\\u0000": "\\u0000 \\ud800"}


def test_a_container_may_appear_twice_side_by_side() -> None:
    shared = [1]
    assert json_text([shared, {"again": shared}]) == '[[1],{"again":[1]}]'


def test_the_deepest_allowed_nesting_passes() -> None:
    value: object = 1
    for _ in range(MAX_DEPTH):
        value = [value]
    assert json_text(value) == "[" * MAX_DEPTH + "1" + "]" * MAX_DEPTH


_SCALARS = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"))
)
_KEYS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=5)


@given(
    st.recursive(
        _SCALARS,
        lambda inner: st.lists(inner, max_size=4) | st.dictionaries(_KEYS, inner, max_size=4),
        max_leaves=20,
    )
)
def test_plain_json_comes_back_as_it_went_in(value: object) -> None:
    assert json.loads(json_text(value)) == value
