"""A message on its way, and the lane that it may be in."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import NamedTuple


class Arrival(NamedTuple):
    """A message as the application enqueued it."""

    at: float
    destination: int = 0
    lane: int | None = None
    poison: bool = False
    """No destination will ever take it."""


@dataclass(slots=True, eq=False)
class Message:
    """One that is not delivered yet."""

    row: int
    created: float
    destination: int
    lane: Lane | None
    poison: bool
    due: float
    attempts: int = 0


@dataclass(slots=True, eq=False)
class Lane:
    """Messages that are published one after the other; the first of ``behind`` is next."""

    behind: deque[Message] = field(default_factory=deque)
    taken: bool = False
    """Whether one of it is queued or being published."""
