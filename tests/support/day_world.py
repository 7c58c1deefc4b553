"""What an outbox tells through a day: messages arrive, workers deliver, and nobody looks."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from tests.support.visiting import counts, worker

if TYPE_CHECKING:
    from collections.abc import Callable

EPOCH = 1_767_225_600.0
RATE = 50.0
"""Messages a second of one worker."""
PUBLISH_SECONDS = 0.1
STEADY = 120.0
"""Arrivals for which three workers are neither too many nor too few."""
HOURS = 3.0
"""Of one wave."""


def steady(_: float) -> float:
    """The same all day."""
    return STEADY


def wave(now: float) -> float:
    """From 20 to 300 a second and back."""
    return 160.0 - 140.0 * math.cos(2 * math.pi * now / (HOURS * 3600))


def bursts(now: float) -> float:
    """Half an hour of work, and half an hour of nothing at all."""
    return 80.0 if now % 3600 < 1800 else 0.0


@dataclass
class Fleet:
    """The workers of one destination."""

    destination: str
    arrivals: Callable[[float], float]
    replicas: Callable[[], int]
    ready: float = 0.0
    processing: int = 0
    _workers: list[dict[str, Any]] = field(default_factory=list)
    _made: int = 0

    def step(self, now: float, seconds: float) -> None:
        """Let ``seconds`` pass until ``now``."""
        replicas = self.replicas()
        while len(self._workers) < replicas:
            self._made += 1
            number = f"{self.destination}-{self._made}"
            self._workers.append({"name": number, "since": now, "done": 0.0, "busy": 0.0})
        del self._workers[replicas:]
        self.ready += self.arrivals(now) * seconds
        most = RATE * replicas * seconds
        done = min(self.ready, most)
        self.ready -= done
        self.processing = math.ceil(done / seconds * PUBLISH_SECONDS)
        for each in self._workers:
            each["done"] += done / replicas
            each["busy"] += seconds * done / most

    def tell(self, now: float) -> tuple[dict[str, Any], list[dict[str, Any]]]:
        """What is counted of its messages, and its heartbeats."""
        waited = self.ready / max(self.arrivals(now), RATE)
        ready, processing = int(self.ready), self.processing
        counted = counts(
            ready=ready,
            ready_unordered=ready,
            processing=processing,
            processing_unordered=processing,
            oldest_ready_age=waited if ready else 0.0,
            next_due_in=None,
        )
        return asdict(counted), [asdict(self._beat(each)) for each in self._workers]

    def _beat(self, said: dict[str, Any]) -> Any:
        done = int(said["done"])
        started = datetime.fromtimestamp(EPOCH + said["since"], UTC)
        return worker(
            said["name"],
            counters={"published": done, "attempts": done, "busy_seconds": said["busy"]},
            destinations={self.destination: {"breaker": "closed", "stopped": False}},
            started_at=started.isoformat(),
        )


def answer(fleets: list[Fleet], now: float) -> dict[str, Any]:
    """As `outbox_stats` gives it."""
    told = {each.destination: each.tell(now) for each in fleets}
    return {
        "at": EPOCH + now,
        "cap": 10_000,
        "destinations": {name: counted for name, (counted, _) in told.items()},
        "workers": [beat for _, beats in told.values() for beat in beats],
    }
