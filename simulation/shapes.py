"""The scenarios. A replica gets through two messages a second; the objective is 30 seconds."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

from simulation.arrivals import hot_key, plain, poisoned, poisson, shared
from simulation.downstream import Fault
from simulation.shape import RATE, Contention, Shape

if TYPE_CHECKING:
    import random
    from collections.abc import Callable

MINUTE = 60.0
HOUR = 60 * MINUTE
LOW, HIGH = 1.0, 14.0
BEGIN, END = (20 * MINUTE, 40 * MINUTE)
DAY = (5 * MINUTE, 75 * MINUTE)
DAYTIME = 9.0


def _between(
    begin: float, end: float, low: float = LOW, high: float = HIGH
) -> Callable[[float], float]:
    return lambda now: high if begin <= now < end else low


def _load(
    rate: Callable[[float], float], *, highest: float = HIGH, until: float
) -> Callable[[random.Random], list[float]]:
    return poisson(rate, highest=highest, until=until)


def _ramp(now: float) -> float:
    return LOW + (HIGH - LOW) * max(0.0, 1 - abs(now - 30 * MINUTE) / (25 * MINUTE))


def _diurnal(now: float) -> float:
    return LOW + (HIGH - LOW) * (1 - math.cos(2 * math.pi * now / HOUR)) / 2


def _spiky(now: float) -> float:
    return 13.0 if now % (10 * MINUTE) >= 8 * MINUTE else 3.0


def _trickle(now: float) -> float:
    return 0.0 if 20 * MINUTE <= now < 40 * MINUTE else 1 / MINUTE


def _daytime() -> Callable[[random.Random], list[float]]:
    return _load(_between(*DAY, 2.0, DAYTIME), highest=DAYTIME, until=1.5 * HOUR)


STEP = plain(_load(_between(5 * MINUTE, HOUR), until=1.5 * HOUR))
DAYTIME_LOAD = plain(_daytime())


def _daytime_with(name: str, says: str, *faults: Fault) -> Shape:
    return Shape(
        name=name,
        says=says,
        duration=1.5 * HOUR,
        arrivals=DAYTIME_LOAD,
        faults=faults,
        failing=True,
        peak=11,
    )


LOADS: tuple[Shape, ...] = (
    Shape(name="step", says="1 to 14/s for 55 minutes", duration=1.5 * HOUR, arrivals=STEP),
    Shape(
        name="ramp",
        says="up to 14/s in 25 minutes, and down",
        duration=HOUR,
        arrivals=plain(_load(_ramp, until=HOUR)),
    ),
    Shape(
        name="burst of a minute",
        says="12/s for a minute, at 2/s",
        duration=0.5 * HOUR,
        arrivals=plain(_load(_between(600.0, 660.0, 2.0, 12.0), until=0.5 * HOUR)),
    ),
    Shape(
        name="burst of 5 minutes",
        says="16/s for 5 minutes, at 2/s",
        duration=0.5 * HOUR,
        arrivals=plain(_load(_between(300.0, 600.0, 2.0, 16.0), highest=16.0, until=0.5 * HOUR)),
        peak=22,
    ),
    Shape(
        name="diurnal",
        says="two waves of an hour, up to 14/s",
        duration=2 * HOUR,
        arrivals=plain(_load(_diurnal, until=2 * HOUR)),
    ),
    Shape(
        name="spiky",
        says="2 of every 10 minutes at 13/s, else 3/s",
        duration=HOUR,
        arrivals=plain(_load(_spiky, until=HOUR)),
    ),
    Shape(
        name="slow startup",
        says="as step, pods take 90 s to start",
        duration=1.5 * HOUR,
        arrivals=STEP,
        startup=90.0,
    ),
    Shape(
        name="idle",
        says="a message a minute and a long pause; no replicas at rest",
        duration=1.5 * HOUR,
        arrivals=plain(_load(_trickle, highest=1 / MINUTE, until=1.5 * HOUR)),
        min_replicas=0,
        peak=1,
    ),
)

TROUBLES: tuple[Shape, ...] = (
    Shape(
        name="one destination dead",
        says="one of three, for 20 minutes",
        duration=1.5 * HOUR,
        arrivals=shared(_daytime(), destinations=3),
        destinations=3,
        faults=(Fault(begin=BEGIN, end=END, destination=0),),
        failing=True,
        peak=11,
    ),
    _daytime_with("all dead", "for 20 minutes", Fault(begin=BEGIN, end=END)),
    _daytime_with(
        "slow downstream",
        "accepts two thirds of the load for 20 minutes",
        Fault(begin=BEGIN, end=END, accepts=DAYTIME * 2 / 3, seconds=1.0),
    ),
    Shape(
        name="poison flood",
        says="a fifth is refused for good, for 20 minutes",
        duration=1.5 * HOUR,
        arrivals=poisoned(_daytime(), begin=BEGIN, end=END, share=0.2),
        failing=True,
        peak=11,
    ),
    Shape(
        name="database away",
        says="for 5 minutes",
        duration=1.5 * HOUR,
        arrivals=DAYTIME_LOAD,
        database_away=(BEGIN, BEGIN + 5 * MINUTE),
        peak=11,
    ),
    Shape(
        name="database-bound",
        says="throughput falls beyond 12 replicas",
        duration=HOUR,
        arrivals=plain(_load(_between(5 * MINUTE, 45 * MINUTE, 2.0, 9.0), highest=9.0, until=HOUR)),
        contention=Contention(sigma=0.01, kappa=0.006),
    ),
    Shape(
        name="hot ordering key",
        says="one of 101 keys gets 5/s for 20 minutes, the others 3/s",
        duration=HOUR,
        arrivals=hot_key(
            _load(lambda _: 3.0, highest=3.0, until=HOUR),
            _load(_between(10 * MINUTE, 30 * MINUTE, 0.05, 5.0), highest=5.0, until=HOUR),
            keys=100,
        ),
        ordered=True,
        peak=5,
    ),
)

BURST_LOAD = plain(_load(_between(5 * MINUTE, 20 * MINUTE), until=40 * MINUTE))
BURST = Shape(name="burst", says="", duration=40 * MINUTE, arrivals=BURST_LOAD)
OPERATOR: tuple[Shape, ...] = (
    replace(
        BURST,
        name="operator restarts",
        says="in the middle of 15 minutes at 14/s",
        restart_at=7.5 * MINUTE,
    ),
    replace(
        BURST,
        name="seed too low",
        says="a fifth of a replica's true rate",
        seed_rate=RATE / 5,
    ),
    replace(
        BURST,
        name="seed too high",
        says="five times a replica's true rate",
        seed_rate=RATE * 5,
    ),
    replace(BURST, name="noise", says="counts are wrong by up to 20 %", noise=0.2),
    replace(
        BURST,
        name="clock jumps",
        says="the operator's, back by a minute",
        skew=(8 * MINUTE, -MINUTE),
    ),
    replace(
        BURST,
        name="rollout",
        says="every pod is replaced under load",
        rollout_at=10 * MINUTE,
    ),
)

SHAPES: tuple[Shape, ...] = (*LOADS, *TROUBLES, *OPERATOR)
