"""Every shape with every scaler and seed."""

from __future__ import annotations

from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING

from simulation.one import simulate
from simulation.scalers.baselines import AgeScaler, DepthScaler, Fixed
from simulation.scalers.operator import OperatorScaler
from simulation.shapes import SHAPES

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from simulation.scaler import Scaler
    from simulation.shape import Shape
    from simulation.tally import Result

GRID = (5.0, 10.0, 15.0, 20.0, 25.0)
"""Seconds of one replica's work for each, up to nearly the objective."""
SEEDS = (1, 2, 3)
BASELINE_DEPTH = 15.0


def run(names: Iterable[str] = (), seeds: Sequence[int] = SEEDS, *, jobs: int = 1) -> list[Result]:
    """Of the shapes with these names, or of all, in the order of `SHAPES`."""
    wanted = set(names)
    chosen = [shape.name for shape in SHAPES if not wanted or shape.name in wanted]
    if not chosen:
        raise ValueError(f"no shape is called {' or '.join(sorted(wanted))}")
    one = partial(_shape, seeds=tuple(seeds))
    if jobs == 1:
        return list(chain.from_iterable(map(one, chosen)))
    with ProcessPoolExecutor(jobs) as pool:
        return list(chain.from_iterable(pool.map(one, chosen)))


_reused: dict[tuple[Shape, str, int], Result] = {}


def _shape(name: str, seeds: tuple[int, ...]) -> list[Result]:
    (shape,) = (shape for shape in SHAPES if shape.name == name)
    return [
        result
        for seed in seeds
        for result in (
            simulate(shape, OperatorScaler(shape), seed),
            *(
                _baseline(shape, scaler, seed)
                for scaler in _baselines(shape, first=seed == seeds[0])
            ),
        )
    ]


def _baselines(shape: Shape, *, first: bool) -> Iterator[Scaler]:
    """The grid for every seed; what only gives an idea, for the first."""
    for seconds in GRID:
        yield DepthScaler(shape, seconds)
    if first:
        yield DepthScaler(shape, BASELINE_DEPTH, due_only=True)
        yield AgeScaler(shape)
        yield AgeScaler(shape, depth_seconds=BASELINE_DEPTH)
        yield Fixed(shape.peak)


def _baseline(shape: Shape, scaler: Scaler, seed: int) -> Result:
    """What happens to the operator does not happen to others: simulated once."""
    alike = replace(shape, name="", says="", seed_rate=None, restart_at=None, skew=None)
    key = (alike, scaler.name, seed)
    if key not in _reused:
        _reused[key] = simulate(shape, scaler, seed)
    return _reused[key]._replace(shape=shape.name)
