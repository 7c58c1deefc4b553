"""The same plots as one picture, where matplotlib is installed."""

from __future__ import annotations

import importlib
import importlib.util
from typing import TYPE_CHECKING, Any

from simulation.gates import OURS, best_keda
from simulation.plots import LOAD_COLOUR, OUR_COLOUR, PANELS, THEIR_COLOUR

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from simulation.tally import Result


def draw(results: Sequence[Result], path: Path) -> bool:
    """Whether it could."""
    if importlib.util.find_spec("matplotlib") is None:
        return False
    importlib.import_module("matplotlib").use("Agg")
    pyplot: Any = importlib.import_module("matplotlib.pyplot")
    best, seed = best_keda(results), results[0].seed
    shown = [r for r in results if r.seed == seed and r.scaler in (OURS, best)]
    names = list(dict.fromkeys(r.shape for r in shown))
    figure, axes = pyplot.subplots(
        len(names), len(PANELS), figsize=(12, 2.2 * len(names)), squeeze=False
    )
    for row, name in zip(axes, names, strict=True):
        for axis, panel in zip(row, PANELS, strict=True):
            _panel(axis, f"{name}: {panel.title}", [r for r in shown if r.shape == name], panel)
    figure.tight_layout()
    figure.savefig(path, dpi=90)
    pyplot.close(figure)
    return True


def _panel(axis: Any, title: str, runs: Sequence[Result], panel: Any) -> None:  # noqa: ANN401 - matplotlib has no types
    axis.set_title(title, fontsize=8)
    load = axis.twinx()
    load.set_yticks([])
    load.plot(
        [p.at / 60 for p in runs[0].points],
        [p.arrivals for p in runs[0].points],
        color=LOAD_COLOUR,
        linewidth=0.8,
    )
    for run in runs:
        colour = OUR_COLOUR if run.scaler == OURS else THEIR_COLOUR
        minutes = [p.at / 60 for p in run.points]
        axis.plot(minutes, [panel.value(p) for p in run.points], color=colour, label=run.scaler)
    axis.legend(fontsize=6)
