"""Warnings that would repeat themselves, at a rate that a person can read."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    from structlog.typing import FilteringBoundLogger

QUIET_SECONDS = 10.0
"""Lines that say the same are this far apart; the next one tells how many were left out."""
ERROR_LENGTH = 300


class Quiet:
    """Lets the first of many equal warnings through, and counts the others."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._next: dict[tuple[str, str], float] = {}
        self._held: dict[tuple[str, str], dict[str, Any]] = {}

    def warn(
        self,
        log: FilteringBoundLogger,
        line: str,
        *,
        key: str,
        count: int = 1,
        **fields: Any,  # noqa: ANN401
    ) -> None:
        """Write ``line``, or hold it back if one with the same ``key`` was just written."""
        now, about = self._clock(), (line, key)
        held = self._held.get(about, {}).get("count", 0)
        fields = {"count": count + held, **fields}
        if now < self._next.get(about, now):
            self._held[about] = fields
            return
        self._held.pop(about, None)
        self._next[about] = now + QUIET_SECONDS
        log.warning(line, **_cleaned(fields))

    def flush(self, log: FilteringBoundLogger) -> None:
        """Write what is held back."""
        for (line, _), fields in self._held.items():
            log.warning(line, **_cleaned(fields))
        self._held.clear()


def clean(text: str) -> str:
    """One line of at most `ERROR_LENGTH` printable characters."""
    short = text[:ERROR_LENGTH]
    if not short.isprintable():
        short = "".join(
            each if each.isprintable() else "\N{REPLACEMENT CHARACTER}" for each in short
        )
    return short if len(text) <= ERROR_LENGTH else short + "\N{HORIZONTAL ELLIPSIS}"


def _cleaned(fields: dict[str, Any]) -> dict[str, Any]:
    return {name: clean(each) if isinstance(each, str) else each for name, each in fields.items()}
