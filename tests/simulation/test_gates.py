from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner

from simulation.__main__ import main
from simulation.campaign import GRID, run
from simulation.gates import OURS, best_keda, dominated, dominates, judge
from simulation.tally import Result

if TYPE_CHECKING:
    from pathlib import Path

KEDA, OTHER = "KEDA, 10 s of work", "KEDA, 20 s of work"
QUICK = "burst of a minute"


def result(scaler: str, late: float, hours: float, reversals: int = 0, failed: int = 0) -> Result:
    return Result("step", scaler, 1, late, hours, reversals, failed, 0)


@pytest.mark.parametrize(
    ("late", "hours", "better"),
    [
        (10.0, 10.0, False),
        (9.9, 9.9, False),
        (9.7, 10.0, True),
        (10.0, 9.7, True),
        (5.0, 10.1, False),
        (10.1, 5.0, False),
    ],
)
def test_better_is_not_worse_at_both_and_by_two_per_cent_at_one(
    late: float, hours: float, *, better: bool
) -> None:
    assert dominates(result(KEDA, late, hours), result(OURS, 10.0, 10.0)) is better


def test_a_tie_of_nothing_late_is_no_victory() -> None:
    assert not dominates(result(KEDA, 0.0, 10.0), result(OURS, 0.0, 10.0))


def test_the_best_keda_is_that_with_the_fewest_late_messages() -> None:
    assert best_keda([result(KEDA, 5.0, 9.0), result(OTHER, 6.0, 1.0)]) == KEDA


def test_what_is_no_keda_of_the_grid_fails_no_gate() -> None:
    results = [
        result(OURS, 1.0, 1.0),
        result(KEDA, 9.0, 9.0, 9, 9),
        result("fixed at the peak", 0.0, 0.5),
        result(f"{KEDA} (due only)", 0.0, 0.5),
    ]
    assert dominated(results) == []
    assert all(gate.holds for gate in judge(results))


@pytest.mark.parametrize(
    "ours",
    [
        (8.6, 1.0, 0, 0),
        (1.0, 8.1, 0, 0),
        (1.0, 1.0, 31, 0),
        (1.0, 1.0, 0, 21),
        (10.0, 10.0, 0, 0),
    ],
)
def test_each_gate_can_fail(ours: tuple[float, float, int, int]) -> None:
    results = [result(OURS, *ours), result(KEDA, 10.0, 10.0, 100, 100)]
    assert sum(not gate.holds for gate in judge(results)) >= 1


def test_a_shape_is_run_with_every_target_and_with_each_seed() -> None:
    results = run([QUICK], seeds=(1, 2))
    assert len(results) == 2 * (1 + len(GRID)) + 4
    assert {r.seed for r in results} == {1, 2}


def test_other_scalers_see_nothing_of_what_happens_to_the_operator() -> None:
    alike = run(["seed too low", "seed too high"], seeds=(1,))
    kedas = [r._replace(shape="") for r in alike if r.scaler == KEDA]
    assert kedas[0] == kedas[1]
    ours = [r._replace(shape="") for r in alike if r.scaler == OURS]
    assert ours[0] != ours[1]


@pytest.mark.parametrize(
    "shape", ["burst of a minute", "burst of 5 minutes", "idle", "operator restarts", "noise"]
)
def test_no_keda_target_is_clearly_better(shape: str) -> None:
    assert dominated(run([shape], seeds=(1,))) == []


def test_the_command_prints_the_table_and_draws_the_plots(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("<!-- simulation -->\nyesterday\n<!-- /simulation -->\n", encoding="utf-8")
    arguments = ["--shape", QUICK, "--seed", "1", "--jobs", "1"]
    done = CliRunner().invoke(main, [*arguments, "--out", str(tmp_path), "--write", str(page)])
    assert f"| {QUICK}" in done.output
    assert done.exit_code in (0, 1)
    assert (done.exit_code == 1) is ("FAILS" in done.output)
    assert "<svg" in (tmp_path / "index.html").read_text(encoding="utf-8")
    written = page.read_text(encoding="utf-8")
    assert "yesterday" not in written
    assert f"| {QUICK}" in written


def test_an_unknown_shape_is_refused_by_its_name() -> None:
    done = CliRunner().invoke(main, ["--shape", "nonsense"])
    assert done.exit_code == 2
    assert "nonsense" in done.output
