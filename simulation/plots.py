"""One HTML page of what happened, without any library."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING, NamedTuple

from simulation.gates import OURS, best_keda
from simulation.shape import OBJECTIVE
from simulation.shapes import SHAPES

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from simulation.tally import Point, Result

WIDTH, HEIGHT, LEFT, BOTTOM = 420, 120, 40, 18
OUR_COLOUR, THEIR_COLOUR, LOAD_COLOUR = "#0b6e4f", "#c1440e", "#9aa0a6"
STYLE = """
body { font: 15px/1.45 system-ui, sans-serif; margin: 2rem auto; max-width: 58rem; padding: 0 1rem;
       color: #1d2125; background: #fff }
h2 { margin: 2rem 0 .2rem; font-size: 1.05rem } p { margin: .2rem 0 .6rem; color: #555 }
pre { overflow-x: auto; font-size: .8rem } .row { display: flex; flex-wrap: wrap; gap: 1rem }
svg text { font: 10px system-ui, sans-serif; fill: #555 } figure { margin: 0 }
figcaption { font-size: .8rem; color: #555 }
"""


class Curve(NamedTuple):
    """One line of a plot."""

    colour: str
    values: list[tuple[float, float]]


class Panel(NamedTuple):
    """One plot: what it shows of each scaler, and how."""

    title: str
    value: Callable[[Point], float]


PANELS = (
    Panel("replicas asked for", lambda point: point.replicas),
    Panel("age of the oldest ready message, seconds", lambda point: point.oldest_age),
)


def page(results: Sequence[Result], report: str) -> str:
    """Everything, for the first seed: the operator beside the best KEDA, over the load."""
    best = best_keda(results)
    seed = results[0].seed
    shown = {(r.shape, r.scaler): r for r in results if r.seed == seed and r.scaler in (OURS, best)}
    sections = [
        _section(shape.name, shape.says, shown[shape.name, OURS], shown[shape.name, best])
        for shape in SHAPES
        if (shape.name, OURS) in shown
    ]
    legend = (
        f'<p><b style="color:{OUR_COLOUR}">{OURS}</b>, <b style="color:{THEIR_COLOUR}">'
        f'{escape(best)}</b>, <span style="color:{LOAD_COLOUR}">arrivals (own scale)</span>; '
        f"the objective is {OBJECTIVE:g} s</p>"
    )
    return (
        '<!doctype html><html lang="en"><meta charset="utf-8"><title>Autoscaling, simulated'
        f"</title><style>{STYLE}</style><h1>Autoscaling, simulated</h1>{legend}"
        f"{''.join(sections)}<h2>All results</h2><pre>{escape(report)}</pre></html>\n"
    )


def _section(name: str, says: str, ours: Result, theirs: Result) -> str:
    figures = []
    for panel in PANELS:
        load = Curve(LOAD_COLOUR, [(p.at, p.arrivals) for p in ours.points])
        curves = [
            Curve(THEIR_COLOUR, [(p.at, panel.value(p)) for p in theirs.points]),
            Curve(OUR_COLOUR, [(p.at, panel.value(p)) for p in ours.points]),
        ]
        figures.append(
            f"<figure>{_svg(load, curves)}<figcaption>{panel.title}</figcaption></figure>"
        )
    numbers = "; ".join(
        f"{r.scaler}: {r.late_percent:.1f} % late, {r.replica_hours:.1f} replica-hours, "
        f"{r.reversals} reversals, {r.failed_calls} failed calls"
        for r in (ours, theirs)
    )
    return (
        f"<h2>{escape(name)}</h2><p>{escape(says)}. {escape(numbers)}.</p>"
        f'<div class="row">{"".join(figures)}</div>'
    )


def _svg(load: Curve, curves: Sequence[Curve]) -> str:
    longest = max(at for curve in curves for at, _ in curve.values)
    highest = max(1.0, *(value for curve in curves for _, value in curve.values))
    busiest = max(1e-9, *(value for _, value in load.values))
    lines = [
        _line(load, longest, busiest * 1.05, 1.0),
        *(_line(curve, longest, highest * 1.05, 1.6) for curve in curves),
    ]
    bottom = HEIGHT - BOTTOM
    return (
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}" role="img">'
        f'<path d="M{LEFT} 0V{bottom}H{WIDTH}" fill="none" stroke="#ccc"/>'
        f'<text x="{LEFT - 4}" y="10" text-anchor="end">{highest:.0f}</text>'
        f'<text x="{LEFT - 4}" y="{bottom}" text-anchor="end">0</text>'
        f'<text x="{WIDTH}" y="{HEIGHT - 4}" text-anchor="end">{longest / 60:.0f} minutes</text>'
        f"{''.join(lines)}</svg>"
    )


def _line(curve: Curve, longest: float, highest: float, width: float) -> str:
    bottom = HEIGHT - BOTTOM
    points = " ".join(
        f"{LEFT + (WIDTH - LEFT) * at / longest:.1f},{bottom * (1 - value / highest):.1f}"
        for at, value in curve.values
    )
    return (
        f'<polyline points="{points}" fill="none" stroke="{curve.colour}" stroke-width="{width}"/>'
    )
