"""What has to hold, or the law is not worth having."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from simulation.tally import Result

OURS = "pgoutbox"
CLEARLY = 0.02
"""Better means not worse on both counts, and by more than this on one."""
LATE, HOURS, REVERSALS, FAILED = 0.85, 0.8, 0.3, 0.2
"""Of the best KEDA's total, at most."""


class Total(NamedTuple):
    """Sums over all shapes and seeds of one scaler."""

    late_percent: float
    replica_hours: float
    reversals: int
    failed_calls: int


class Gate(NamedTuple):
    """One condition, and what came of it."""

    says: str
    holds: bool


def is_keda(scaler: str) -> bool:
    """Whether it belongs to the grid."""
    return scaler.startswith("KEDA") and not scaler.endswith("(due only)")


def totals(results: Iterable[Result]) -> dict[str, Total]:
    """Of each scaler."""
    sums: dict[str, Total] = {}
    for result in results:
        before = sums.get(result.scaler, Total(0.0, 0.0, 0, 0))
        sums[result.scaler] = Total(
            before.late_percent + result.late_percent,
            before.replica_hours + result.replica_hours,
            before.reversals + result.reversals,
            before.failed_calls + result.failed_calls,
        )
    return sums


def best_keda(results: Iterable[Result]) -> str:
    """The target of the grid with the fewest late messages."""
    sums = {name: total for name, total in totals(results).items() if is_keda(name)}
    return min(sums, key=lambda name: sums[name])


def dominates(other: Result, ours: Result) -> bool:
    """Whether the other is clearly better: at one thing, and not worse at the other."""
    pairs = (
        (other.late_percent, ours.late_percent),
        (other.replica_hours, ours.replica_hours),
    )
    not_worse = all(theirs <= mine for theirs, mine in pairs)
    return not_worse and any(theirs < mine * (1 - CLEARLY) for theirs, mine in pairs)


def dominated(results: Sequence[Result]) -> list[Result]:
    """Of KEDA, those that are clearly better than we are at the same shape and seed."""
    ours = {(r.shape, r.seed): r for r in results if r.scaler == OURS}
    return [r for r in results if is_keda(r.scaler) and dominates(r, ours[r.shape, r.seed])]


def judge(results: Sequence[Result]) -> list[Gate]:
    """All gates."""
    sums, best = totals(results), best_keda(results)
    mine, theirs = sums[OURS], sums[best]
    beaten = dominated(results)
    where = ", ".join(f"{r.shape} (seed {r.seed}, {r.scaler})" for r in beaten)
    gates = [
        Gate(f"no KEDA target is clearly better at any shape: {where or 'none is'}", not beaten)
    ]
    for name, share, our, their in (
        ("late messages", LATE, mine.late_percent, theirs.late_percent),
        ("replica-hours", HOURS, mine.replica_hours, theirs.replica_hours),
        ("reversals", REVERSALS, mine.reversals, theirs.reversals),
        ("failed calls", FAILED, mine.failed_calls, theirs.failed_calls),
    ):
        ratio = our / their if their else float(our > 0)
        gates.append(Gate(f"{name}: {ratio:.2f} of {best}, at most {share:g}", ratio <= share))
    return gates
