"""Lines that would repeat themselves, at a rate that a person can read."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    Later = Callable[[float, Callable[[], None]], object]
    Tell = Callable[..., object]

QUIET_SECONDS = 10.0
"""After its first lines, what repeats itself is one line in so many seconds."""
TOLERANCE = 0.01
"""A timer may ring so much early."""
ERROR_LENGTH = 300


@dataclass(slots=True)
class _Turn:
    """What was said lately, and what waits to be said."""

    until: float
    left: int
    tell: Tell
    held: dict[str, Any] | None = None


class Quiet:
    """Lets the first of many equal lines through, and makes one of the others."""

    def __init__(self, clock: Callable[[], float], later: Later) -> None:
        """``later`` calls a function after so many seconds."""
        self._clock = clock
        self._later = later
        self._turns: dict[tuple[str, str], _Turn] = {}

    def say(
        self,
        tell: Tell,
        line: str,
        *,
        key: str = "",
        burst: int = 1,
        **fields: Any,  # noqa: ANN401
    ) -> None:
        """Write ``line`` by ``tell``, a logger's method, or hold it back for a while.

        It is held back when ``burst`` lines with the same ``key`` were just written. Numbers are
        added up, those in a dictionary too; of all else the latest is told.
        """
        now, about = self._clock(), (line, key)
        turn = self._turns.get(about)
        if turn is None or (now >= turn.until and turn.held is None):
            turn = self._turns[about] = _Turn(now + QUIET_SECONDS, burst, tell)
        if turn.held is None and turn.left > 0:
            turn.left -= 1
            tell(line, **_cleaned(fields))
            return
        if turn.held is None:
            self._later(max(turn.until - now, 0.0), lambda: self._on_time(about))
        turn.held = _together(turn.held or {}, fields)
        if now >= turn.until:
            self._end(about)

    def flush(self) -> None:
        """Write what is held back."""
        for about in list(self._turns):
            self._end(about)

    def _on_time(self, about: tuple[str, str]) -> None:
        # Not where it was said meanwhile, and the next one has its own time.
        if self._clock() + TOLERANCE >= self._turns[about].until:
            self._end(about)

    def _end(self, about: tuple[str, str]) -> None:
        turn = self._turns[about]
        if turn.held is None:
            return
        fields, turn.held = turn.held, None
        turn.until, turn.left = self._clock() + QUIET_SECONDS, 0
        turn.tell(about[0], **_cleaned(fields))


def clean(text: str) -> str:
    """One line of at most `ERROR_LENGTH` printable characters."""
    short = text[:ERROR_LENGTH]
    if not short.isprintable():
        short = "".join(
            each if each.isprintable() else "\N{REPLACEMENT CHARACTER}" for each in short
        )
    return short if len(text) <= ERROR_LENGTH else short + "\N{HORIZONTAL ELLIPSIS}"


def _together(held: dict[str, Any], fields: dict[str, Any]) -> dict[str, Any]:
    both = dict(fields)
    for name in held.keys() & fields.keys():
        if isinstance(fields[name], int):
            both[name] = held[name] + fields[name]
        elif isinstance(fields[name], dict):
            both[name] = dict(Counter(held[name]) + Counter(fields[name]))
    return both


def _cleaned(fields: dict[str, Any]) -> dict[str, Any]:
    return {name: clean(each) if isinstance(each, str) else each for name, each in fields.items()}
