"""JSON that is carried on as the text that it is, so that no number is rounded."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, NoReturn

if TYPE_CHECKING:
    from pgoutbox.message import ClaimedMessage


def json_text(message: ClaimedMessage) -> bytes | None:
    """The payload where it is JSON and its content type says so, ready to stand in other JSON."""
    if not _says_json(message.content_type):
        return None
    try:
        # Numbers stay text: only the syntax is of interest, and a long one costs nothing.
        json.loads(
            message.body.decode(), parse_int=str, parse_float=str, parse_constant=_not_a_number
        )
    except (ValueError, RecursionError):
        return None
    return message.body


def _says_json(content_type: str) -> bool:
    subtype = content_type.partition(";")[0].strip().lower().partition("/")[2]
    return subtype == "json" or subtype.endswith("+json")


def _not_a_number(name: str) -> NoReturn:
    raise ValueError(name)
