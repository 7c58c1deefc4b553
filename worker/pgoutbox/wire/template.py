"""Names that depend on the message: ``outbox.event.{aggregate_type}``. No `str.format` anywhere."""

from __future__ import annotations

import re
from operator import attrgetter
from typing import TYPE_CHECKING, TypeAlias

from pgoutbox.errors import PermanentError
from pgoutbox.message import HEADER_NAME

if TYPE_CHECKING:
    from collections.abc import Callable

    from pgoutbox.message import ClaimedMessage

    Value: TypeAlias = Callable[[ClaimedMessage], str]

FIELDS: tuple[str, ...] = ("aggregate_type", "aggregate_id", "event_type")
_PART = re.compile(r"\{([^{}]*)\}|([^{}]+)|(.)", re.DOTALL)
_HEADER = re.compile(r"headers\[([^\[\]]*)\]")


class Template:
    """Text with fields of the message in braces; the fields are a closed set.

    Raises ValueError, with words for people, for an unknown field or a brace that stands alone.
    """

    def __init__(self, text: str) -> None:
        self.text = text
        parts = [_parsed(*match.groups()) for match in _PART.finditer(text)]
        self.names = tuple(match[1] for match in _PART.finditer(text) if match[1] is not None)
        """What stands in braces, in order. Empty: it is the same for all messages."""
        self._parts = parts

    def __repr__(self) -> str:
        return f"Template({self.text!r})"

    @property
    def fixed(self) -> bool:
        """Whether it is the same for every message."""
        return not self.names

    def filled(self, value: str) -> str:
        """The text with the same value for every field, to see whether it fits anywhere at all."""
        return "".join(part if isinstance(part, str) else value for part in self._parts)

    def render(self, message: ClaimedMessage, escape: Callable[[str], str] | None = None) -> str:
        """The text for this message; ``escape`` is applied to what comes out of the message.

        Raises `PermanentError` where the message lacks a header that the template names.
        """
        if not self.names:
            return self.text
        return "".join(
            part if isinstance(part, str) else (escape or str)(part(message))
            for part in self._parts
        )


def _parsed(field: str | None, literal: str | None, stray: str | None) -> str | Value:
    if literal is not None:
        return literal
    if stray is not None or field is None:
        raise ValueError(f"has a {stray!r} without its partner")
    if field in FIELDS:
        value: Value = attrgetter(field)
        return value
    header = _HEADER.fullmatch(field)
    if header is None:
        raise ValueError(
            f"knows no field {{{field}}}; there are "
            f"{', '.join(f'{{{name}}}' for name in FIELDS)} and {{headers[name]}}"
        )
    if HEADER_NAME.fullmatch(header[1]) is None:
        raise ValueError(f"asks for a header {header[1]!r}, which no message can have")
    return _HeaderValue(header[1])


class _HeaderValue:
    """The value of one header. Names are compared without their case, as HTTP does."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __call__(self, message: ClaimedMessage) -> str:
        wanted = self._name.lower()
        for name, value in message.headers.items():
            if name.lower() == wanted:
                return value
        raise PermanentError(
            f"the message has no header {self._name!r}, which the destination's URL or topic is"
            " made of"
        )


DEFAULT_TOPIC = Template("outbox.event.{aggregate_type}")
"""Where neither the URL nor the settings say otherwise, as Debezium's router has it."""
