"""The HorizontalPodAutoscaler (autoscaling/v2), as its documentation and its controller say.

Not modelled: missing and unready pods of resource metrics, which are about pods' own usage.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Literal

TOLERANCE = 0.1
SYNC_SECONDS = 15.0


@dataclass(frozen=True, slots=True)
class AverageValue:
    """An external metric, divided by the replicas: ``ceil(total / target)``."""

    target: float

    def desired(self, total: float, replicas: int, ready: int) -> int:  # noqa: ARG002 - as `Value`
        """Replicas for this total."""
        ratio = total / (self.target * replicas)
        if abs(1 - ratio) <= TOLERANCE:
            return replicas
        return math.ceil(total / self.target)


@dataclass(frozen=True, slots=True)
class Value:
    """An external metric as it is: ``ceil(ready * value / target)``."""

    target: float

    def desired(self, value: float, replicas: int, ready: int) -> int:
        """Replicas for this value."""
        ratio = value / self.target
        return replicas if abs(1 - ratio) <= TOLERANCE else math.ceil(ratio * ready)


Metric = AverageValue | Value


@dataclass(frozen=True, slots=True)
class Rule:
    """So many pods, or so many per cent, within a period."""

    kind: Literal["Pods", "Percent"]
    value: int
    period: float

    def up(self, start: int) -> int:
        """The most that there may be."""
        return (
            start + self.value if self.kind == "Pods" else math.ceil(start * (1 + self.value / 100))
        )

    def down(self, start: int) -> int:
        """The least that there may be."""
        # The controller cuts off: of 72 pods less 10 % there may be 64.
        return start - self.value if self.kind == "Pods" else int(start * (1 - self.value / 100))


DEFAULT_UP = (Rule("Percent", 100, 15.0), Rule("Pods", 4, 15.0))
DEFAULT_DOWN = (Rule("Percent", 100, 15.0),)


@dataclass(slots=True, kw_only=True)
class Hpa:
    """One object and the controller's memory of it."""

    metrics: tuple[Metric, ...]
    max_replicas: int
    min_replicas: int = 1
    up: tuple[Rule, ...] = DEFAULT_UP
    down: tuple[Rule, ...] = DEFAULT_DOWN
    up_window: float = 0.0
    down_window: float = 300.0
    _recommended: list[tuple[float, int]] = field(default_factory=list)
    _scaled: list[tuple[float, int]] = field(default_factory=list)

    def sync(self, now: float, replicas: int, ready: int, values: tuple[float | None, ...]) -> int:
        """One round of its controller. None: that metric could not be read."""
        if not replicas and self.min_replicas:
            return 0
        if not self._recommended:
            self._recommended.append((now, replicas))
        desired = self._wanted(replicas, ready, values)
        if desired is None:
            return replicas
        stable = self._stabilized(now, replicas, desired)
        after = self._within_rules(now, replicas, stable)
        if after != replicas:
            self._scaled.append((now, after - replicas))
        return after

    def _wanted(self, replicas: int, ready: int, values: tuple[float | None, ...]) -> int | None:
        """The most that any metric asks for; None: nothing is to happen."""
        if not self.min_replicas <= replicas <= self.max_replicas:
            return min(max(replicas, self.min_replicas), self.max_replicas)
        known = [
            metric.desired(value, replicas, ready)
            for metric, value in zip(self.metrics, values, strict=True)
            if value is not None
        ]
        if not known or (len(known) < len(values) and max(known) < replicas):
            return None
        return max(known)

    def _stabilized(self, now: float, replicas: int, desired: int) -> int:
        history = [(at, n) for at, n in self._recommended if now - at < 2 * self.down_window + 1]
        highest = max([desired, *(n for at, n in history if now - at < self.down_window)])
        lowest = min([desired, *(n for at, n in history if now - at < self.up_window)])
        self._recommended = [*history, (now, desired)]
        return min(max(replicas, lowest), highest)

    def _within_rules(self, now: float, replicas: int, desired: int) -> int:
        if desired > replicas:
            limit = max(rule.up(self._at_start(now, rule, replicas)) for rule in self.up)
            limit = min(max(limit, replicas), self.max_replicas)
            return min(desired, limit)
        if desired < replicas:
            limit = min(rule.down(self._at_start(now, rule, replicas)) for rule in self.down)
            limit = max(min(limit, replicas), self.min_replicas)
            return max(desired, limit)
        return replicas

    def _at_start(self, now: float, rule: Rule, replicas: int) -> int:
        """Replicas when the rule's period began."""
        return replicas - sum(by for at, by in self._scaled if now - at < rule.period)
