"""A destination as the dispatcher sees it: its publisher, its limits, and its breaker."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from pgoutbox.destinations.breaker import Breaker

if TYPE_CHECKING:
    from pgoutbox.publisher import BatchPublisher, Publisher


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """The limits of one destination. All durations in seconds."""

    base: float = 1.0
    cap: float = 300.0
    max_attempts: int = 12
    defer_max_age: float = 86_400.0
    dead_head: Literal["block", "skip"] = "block"
    """What a dead message does to those behind it in its lane: they wait, or go on without it."""


@dataclass(slots=True, kw_only=True)
class Destination:
    """A named target with its publisher and limits. Durations in seconds."""

    name: str
    publisher: Publisher | BatchPublisher
    concurrency: int = 50
    publish_timeout: float = 10.0
    policy: RetryPolicy = field(default_factory=RetryPolicy)
    breaker: Breaker = field(default_factory=Breaker)
    stopped: bool = False
    """After a bug in the publisher: nothing more is claimed for it."""
