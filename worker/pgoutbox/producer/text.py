"""What PostgreSQL can store as text: everything but NUL and halves of surrogate pairs."""

from __future__ import annotations

import re

from pgoutbox.errors import InvalidMessage

_UNSTORABLE = re.compile("[\0\ud800-\udfff]")


def unstorable(text: str) -> str | None:
    """Why this text cannot be stored, or None."""
    if text.isascii() and "\0" not in text:  # nearly every text; much quicker than the pattern
        return None
    found = _UNSTORABLE.search(text)
    if found is None:
        return None
    if found[0] == "\0":
        return f"contains a NUL character at position {found.start()}; PostgreSQL cannot store it"
    return (
        f"contains the lone surrogate U+{ord(found[0]):04X} at position {found.start()}, "
        "which no valid Unicode text has"
    )


def checked(value: object, name: str, *, max_bytes: int) -> str:
    """The value as a plain ``str`` of 1 to ``max_bytes`` bytes of UTF-8, or `InvalidMessage`."""
    if not isinstance(value, str):
        raise InvalidMessage(name, f"must be a str, not {type(value).__name__}")
    if why := unstorable(value):
        raise InvalidMessage(name, why)
    if not value:
        raise InvalidMessage(name, "must not be empty")
    if (size := len(value.encode())) > max_bytes:
        raise InvalidMessage(name, f"has {size} bytes in UTF-8; at most {max_bytes} are allowed")
    # An enum that is a str would be sent by its name or its value as the driver sees fit.
    return value if type(value) is str else str.__str__(value)
