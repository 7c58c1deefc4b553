"""The producer's own headers, as every format passes them on."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import quote

from pgoutbox.message import HEADER_NAME

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

# What a token may hold besides letters, digits and what `quote` leaves alone anyway. Not the
# percent sign, so that a consumer can decode.
_SAFE_IN_NAMES = "!#$&'*+^`|"
CONTENT_TYPE = "content-type"


def user_headers(
    headers: Mapping[str, str], *, taken: Collection[str] = (), prefix: str = ""
) -> list[tuple[str, str]]:
    """The headers of a message, except for those that would pass for the format's.

    These are the names in ``taken`` and the names that begin with ``prefix``, both given in lower
    case and compared without their case, and ``content-type``, which has a place of its own.
    Plain SQL can store any name: one that is no token is percent-encoded, so that every broker can
    carry it, and one without a character is left out.
    """
    kept = []
    for name, value in headers.items():
        lower = name.lower()
        if lower == CONTENT_TYPE or lower in taken or (prefix and lower.startswith(prefix)):
            continue
        if HEADER_NAME.fullmatch(name):
            kept.append((name, value))
        elif name:
            kept.append((quote(name, safe=_SAFE_IN_NAMES, errors="replace"), value))
    return kept


def header(headers: Mapping[str, str], name: str) -> str:
    """The value of one header, whose name is given in lower case; empty where there is none."""
    for found, value in headers.items():
        if found.lower() == name:
            return value
    return ""
