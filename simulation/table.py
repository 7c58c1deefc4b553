"""The results as Markdown."""

from __future__ import annotations

from statistics import fmean
from typing import TYPE_CHECKING

from simulation.gates import OURS, best_keda, is_keda, totals
from simulation.shapes import SHAPES

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from simulation.gates import Gate
    from simulation.tally import Result

FEWEST = 10


def by_shape(results: Sequence[Result]) -> str:
    """Each shape against the best KEDA, means over the seeds."""
    best = best_keda(results)
    cheapest = [name for name in totals(results) if is_keda(name)][-1]
    chosen = (OURS, best, cheapest)
    lines = [
        "| shape | " + " | ".join(chosen) + " |",
        "|---|" + "---|" * len(chosen),
    ]
    for shape in SHAPES:
        cells = [_cell(_of(results, shape.name, scaler)) for scaler in chosen]
        if all(cells):
            lines.append(f"| {shape.name}: {shape.says} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def by_scaler(results: Sequence[Result]) -> str:
    """Sums over everything; for those that ran with the first seed only, over that."""
    seeds = {r.seed for r in results}
    lines = [
        "| scaler | late, % points | replica-hours | reversals | failed calls |",
        "|---|---|---|---|---|",
    ]
    for scaler in totals(results):
        runs = [r for r in results if r.scaler == scaler]
        total = totals(runs)[scaler]
        every = len(seeds) / len({r.seed for r in runs})
        lines.append(
            f"| {scaler}{' (one seed, times ' + str(len(seeds)) + ')' if every > 1 else ''} "
            f"| {every * total.late_percent:.0f} | {every * total.replica_hours:.0f} "
            f"| {every * total.reversals:.0f} | {every * total.failed_calls:.0f} |"
        )
    return "\n".join(lines)


def gates_list(gates: Iterable[Gate]) -> str:
    """What holds and what does not."""
    return "\n".join(f"- {'holds' if gate.holds else 'FAILS'}: {gate.says}" for gate in gates)


def _of(results: Sequence[Result], shape: str, scaler: str) -> list[Result]:
    return [r for r in results if r.shape == shape and r.scaler == scaler]


def _cell(runs: list[Result]) -> str:
    if not runs:
        return ""
    parts = [
        f"{fmean(r.late_percent for r in runs):.1f} %",
        f"{fmean(r.replica_hours for r in runs):.1f} h",
        f"{_rough(fmean(r.reversals for r in runs))}",
    ]
    failed = fmean(r.failed_calls for r in runs)
    return " / ".join([*parts, f"{failed:.0f}"] if failed else parts)


def _rough(mean: float) -> str:
    return f"{mean:.0f}" if mean >= FEWEST else f"{mean:.1f}".removesuffix(".0")
