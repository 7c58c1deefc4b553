"""What people are not to see of a payload. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

REDACTED = "[redacted]"

Path = tuple[str, ...]


def redact(value: object, paths: Sequence[str]) -> object:
    """A copy of a JSON value with everything that a path leads to replaced by ``REDACTED``.

    A path is names with dots between them, from the outermost object inwards: ``card.number``.
    ``*`` is any name or any item, ``**`` any number of them: ``items.*.secret``, ``**.password``.
    Arrays need no part of their own (``items.secret`` does the same), a number stands for every
    item of one, and names match whatever their case: in doubt more is hidden than was asked for.
    Empty paths hide nothing.
    """
    parsed = {tuple(path.casefold().split(".")) for path in paths if path}
    return _redacted(value, parsed)


def _redacted(value: object, paths: set[Path]) -> object:
    paths = _with_none_of_many(paths)
    if () in paths:
        return REDACTED
    if not paths:
        return value
    if isinstance(value, dict):
        return _object(value, paths)
    if isinstance(value, list):
        below = paths | {path[1:] for path in paths if path[0] == "*" or path[0].isdecimal()}
        return [_redacted(item, below) for item in value]
    return value


def _object(value: Mapping[str, object], paths: set[Path]) -> dict[str, object]:
    return {name: _redacted(item, _below(name, paths)) for name, item in value.items()}


def _below(name: str, paths: set[Path]) -> set[Path]:
    """What is left of the paths within the member of this name."""
    folded = name.casefold()
    left = {path[1:] for path in paths if path[0] in (folded, "*")}
    return left | {path for path in paths if path[0] == "**"}


def _with_none_of_many(paths: set[Path]) -> set[Path]:
    """``**`` may also stand for nothing; at the end of a path it stands for something."""
    known = set(paths)
    for path in paths:
        rest = path
        while len(rest) > 1 and rest[0] == "**":
            rest = rest[1:]
            known.add(rest)
    return {("*",) if path == ("**",) else path for path in known}
