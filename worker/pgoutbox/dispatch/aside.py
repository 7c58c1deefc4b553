"""What is left alone for a while, because nothing can be written to it. Pure."""

from __future__ import annotations

from typing import Generic, TypeVar

T = TypeVar("T")

ASIDE_SECONDS = 60.0


class Aside(Generic[T]):
    """Ids or lanes; each comes back by itself, for its trigger may have changed its mind."""

    def __init__(self, seconds: float = ASIDE_SECONDS) -> None:
        self._seconds = seconds
        self._until: dict[T, float] = {}

    def put(self, what: T, now: float) -> None:
        """Leave it alone from ``now`` on (monotonic seconds)."""
        self._until.pop(what, None)
        self._until[what] = now + self._seconds

    def at(self, now: float) -> list[T]:
        """What is to be left alone now."""
        while self._until:
            # The first one was put there first.
            what, until = next(iter(self._until.items()))
            if until > now:
                break
            del self._until[what]
        return list(self._until)
