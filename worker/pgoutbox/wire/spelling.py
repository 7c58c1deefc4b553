"""Any text in headers that hold visible ASCII, with blanks only inside: percent-encoded UTF-8."""

from __future__ import annotations

from urllib.parse import quote

# Blanks are spelled by hand: only those at the ends need it.
_VISIBLE = "!\"#$&'()*+,-./:;<=>?@[\\]^_`{|}~ "


def fitting(value: str) -> str:
    """As it is, and encoded only where it could not stand in a header. No way back from that."""
    fits = value.isascii() and value.isprintable() and value.strip(" ") == value
    return value if fits else _percent(value)


def decodable(value: str) -> str:
    """As `fitting`, and so that whoever receives it may always decode it."""
    return _percent(value) if "%" in value else fitting(value)


def _percent(value: str) -> str:
    # Blanks stay readable inside, but a receiver strips them at the ends.
    inner = value.strip(" ")
    if not inner:
        return "%20" * len(value)
    start, end = value.index(inner), len(value) - len(value.rstrip(" "))
    middle = quote(inner, safe=_VISIBLE, errors="replace")
    return "%20" * start + middle + "%20" * end
