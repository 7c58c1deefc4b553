"""How a scenario is judged."""

from __future__ import annotations

import re

import click
import pytest

from pgoutbox.bench.bars import BARS, FLOOR, Verdict, judge
from pgoutbox.bench.figures import of_worker
from pgoutbox.bench.suite import BASELINE, SCENARIOS, needed, what
from pgoutbox.bench.workers import Worked
from pgoutbox.cli.bench_scenarios import chosen


def figures(**claims: float) -> dict[str, dict[str, float | None]]:
    return {name: {"claim_ms_per_100": value} for name, value in claims.items()}


def test_a_claim_may_cost_half_as_much_again_as_on_a_clean_table() -> None:
    [at] = judge("history", figures(baseline=2.0, history=3.0), complete=True)
    [above] = judge("history", figures(baseline=2.0, history=3.1), complete=True)
    assert (at.ratio, at.holds) == (1.5, True)
    assert (above.ratio, above.holds) == (1.55, False)


def test_lanes_are_measured_against_the_floor() -> None:
    found: dict[str, dict[str, float | None]] = {
        FLOOR: {"msgs_per_s": 10_000.0},
        "lanes-uniform": {"msgs_per_s": 3_000.0},
        "lanes-hot": {"msgs_per_s": 2_300.0},
    }
    [uniform] = judge("lanes-uniform", found, complete=True)
    [hot] = judge("lanes-hot", found, complete=True)
    assert (uniform.holds, hot.holds) == (True, False)
    assert uniform.as_dict()["against"] == "floor"


def test_what_did_not_finish_holds_no_bar() -> None:
    [verdict] = judge("history", figures(baseline=2.0, history=2.0), complete=False)
    assert not verdict.holds
    assert verdict.ratio == 1.0


def test_what_failed_holds_no_bar_and_has_no_ratio() -> None:
    [verdict] = judge("history", figures(baseline=2.0), complete=False)
    assert (verdict.holds, verdict.ratio) == (False, None)
    assert "unknown" in str(verdict)


def test_a_drain_that_slows_down_is_told_by_its_messages_also_where_its_claims_do_not() -> None:
    claims = [(10, 0.001)] * 10
    times = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0, 12.0]
    progress = [(10 * number, at) for number, at in enumerate(times, start=1)]
    found = of_worker(Worked(claims, 100, 12.0, progress), 100, tenths=True)
    ratios = {verdict.bar.figure: verdict for verdict in judge_worker(found.figures())}
    assert ratios["last_to_first"].holds
    assert ratios["drain_last_to_first"].ratio == 3.0
    assert not ratios["drain_last_to_first"].holds


def test_a_drain_that_finished_nothing_has_no_tenths() -> None:
    found = of_worker(Worked([], 0, 0.0, []), 100, tenths=True)
    assert [verdict.ratio for verdict in judge_worker(found.figures())] == [None, None]


def judge_worker(figures: dict[str, float | None]) -> list[Verdict]:
    return judge("xmin-worker", {"xmin-worker": figures}, complete=True)


def test_what_has_no_bar_is_only_measured() -> None:
    assert judge("mixed", figures(baseline=2.0, mixed=9.0), complete=True) == []


def test_every_bar_is_of_a_scenario_and_against_one_that_ran_before_it() -> None:
    order = [FLOOR, *SCENARIOS]
    for bar in BARS:
        assert bar.scenario in SCENARIOS
        assert bar.against is None or order.index(bar.against) < order.index(bar.scenario)
        assert (bar.at_most is None) != (bar.at_least is None)


def test_the_baseline_runs_first_and_what_others_are_compared_with_runs_too() -> None:
    assert needed(["retention-archive", "lanes-blocked"]) == [
        BASELINE,
        "lanes-uniform",
        "lanes-blocked",
        "retention-keep",
        "retention-archive",
    ]


def test_scenarios_are_named_one_by_one_or_with_commas_or_all() -> None:
    assert chosen(["dead", "xmin, mixed"]) == ["dead", "xmin", "mixed"]
    assert chosen(["dead,all"]) == list(SCENARIOS)


@pytest.mark.parametrize("words", [["deat"], ["dead,deat"], [","]])
def test_an_unknown_scenario_is_refused_with_those_that_there_are(words: list[str]) -> None:
    with pytest.raises(click.BadParameter, match="choose from all, baseline, history"):
        chosen(words)


def test_a_scenario_is_announced_with_the_rows_that_it_will_have() -> None:
    assert what(SCENARIOS["history"], 1).startswith("1,000,000 finished messages are kept")
    assert what(SCENARIOS["history"], 0.01) == "10,000 finished messages are kept, and 400 are due"
    assert what(SCENARIOS["lanes-blocked"], 0.01) == (
        "1,000 keys are blocked by a dead head; 100 others have 10 messages each"
    )


@pytest.mark.parametrize("name", SCENARIOS)
def test_no_scenario_is_announced_with_thousands_where_it_has_hundreds(name: str) -> None:
    told = what(SCENARIOS[name], 0.0001)
    assert not re.search(r"\d,\d|million|thousand", told)
