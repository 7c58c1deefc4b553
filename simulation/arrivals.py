"""Poisson arrivals at a rate that changes with time."""

from __future__ import annotations

from typing import TYPE_CHECKING

from simulation.messages import Arrival

if TYPE_CHECKING:
    import random
    from collections.abc import Callable


def poisson(
    rate: Callable[[float], float], *, highest: float, until: float
) -> Callable[[random.Random], list[float]]:
    """Moments, by thinning a stream of the ``highest`` rate (Lewis and Shedler, 1979)."""

    def moments(rng: random.Random) -> list[float]:
        found, now = [], 0.0
        while (now := now + rng.expovariate(highest)) < until:
            if rng.random() * highest < rate(now):
                found.append(now)
        return found

    return moments


def plain(moments: Callable[[random.Random], list[float]]) -> Callable[..., list[Arrival]]:
    """To the one destination, in no order."""
    return lambda rng: [Arrival(at) for at in moments(rng)]


def shared(
    moments: Callable[[random.Random], list[float]], *, destinations: int
) -> Callable[..., list[Arrival]]:
    """To several destinations alike."""
    return lambda rng: [Arrival(at, rng.randrange(destinations)) for at in moments(rng)]


def hot_key(
    rest: Callable[[random.Random], list[float]],
    hot: Callable[[random.Random], list[float]],
    *,
    keys: int,
) -> Callable[..., list[Arrival]]:
    """Each in a lane: one of ``keys`` alike, or the hot one beside them."""
    return lambda rng: sorted(
        [
            *(Arrival(at, 0, 1 + rng.randrange(keys)) for at in rest(rng)),
            *(Arrival(at, 0, 0) for at in hot(rng)),
        ]
    )


def poisoned(
    moments: Callable[[random.Random], list[float]], *, begin: float, end: float, share: float
) -> Callable[..., list[Arrival]]:
    """A share of those between ``begin`` and ``end`` is refused for good."""
    return lambda rng: [
        Arrival(at, poison=begin <= at < end and rng.random() < share) for at in moments(rng)
    ]
