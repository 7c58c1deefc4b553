"""The query of a destination's URL, for adapters whose options stand there."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING
from urllib.parse import SplitResult, parse_qsl, urlsplit

from pgoutbox.errors import InvalidDestination

if TYPE_CHECKING:
    from collections.abc import Collection

YES = ("1", "true", "yes", "on")
NO = ("0", "false", "no", "off")
_NAME = re.compile(r"[a-z][a-z_.]*")


def split(url: str, destination: str) -> SplitResult:
    """The parts of ``url``, which names one host at most; both host and port can be read."""
    parts = _split(url, destination)
    try:
        _ = parts.hostname, parts.port
    except ValueError:
        raise _malformed(destination) from None
    return parts


def _split(url: str, destination: str) -> SplitResult:
    try:
        parts = urlsplit(url)
    except ValueError:
        raise _malformed(destination) from None
    if "@" in parts.path + parts.query + parts.fragment:
        # Most likely the rest of a password, in which one of the others was not encoded.
        raise InvalidDestination(
            destination,
            "the URL has an @ behind its host; percent-encode / ? # and @ in the user and the"
            " password, and an @ elsewhere",
        )
    return parts


def _malformed(destination: str) -> InvalidDestination:
    # The parser's own words may repeat the URL with its password.
    return InvalidDestination(destination, "the URL's host or port is not well-formed")


def options_of(url: str, destination: str, *, known: Collection[str]) -> dict[str, str]:
    """The options in the query of ``url``; one that is unknown or repeated is refused."""
    found: dict[str, str] = {}
    parts = _split(url, destination)
    for name, value in parse_qsl(parts.query, keep_blank_values=True):
        if name not in known:
            offer = f"known are {', '.join(known)}" if known else "it takes none"
            # What does not look like the name of an option may be anything, a secret included.
            shown = repr(name) if _NAME.fullmatch(name) else "what stands in its query"
            raise InvalidDestination(
                destination, f"{shown} is no option of {parts.scheme}://; {offer}"
            )
        if name in found:
            raise InvalidDestination(destination, f"the option {name!r} is given twice")
        found[name] = value
    return found


def switch(options: dict[str, str], name: str, destination: str, *, default: bool) -> bool:
    """An option that is on or off."""
    value = options.get(name, "").lower()
    if value in YES:
        return True
    if value in NO:
        return False
    if name not in options:
        return default
    raise InvalidDestination(destination, f"{name}={value} is neither 1 nor 0")


def milliseconds(options: dict[str, str], name: str, destination: str) -> float:
    """An option in milliseconds, as seconds; 0 where it is absent."""
    text = options.get(name, "0")
    if not (text.isascii() and text.isdecimal() and len(text) <= len("3600000")):
        raise InvalidDestination(
            destination, f"{name}={text} is not a whole number of milliseconds"
        )
    return int(text) / 1000
