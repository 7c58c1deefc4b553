"""``pgoutbox bench --scenario``, with a few hundred rows: that it measures, not how fast."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import psycopg
import pytest
from click.testing import CliRunner

from pgoutbox.bench import seeds, suite, workers
from pgoutbox.bench.bars import Bar
from pgoutbox.bench.claiming import drain
from pgoutbox.bench.figures import LOOP, Found, of_loop
from pgoutbox.bench.place import Place, place
from pgoutbox.bench.unordered import held_horizon
from pgoutbox.cli.main import group

if TYPE_CHECKING:
    from collections.abc import Iterator

COUNTS = b"SELECT status, count(*) FROM outbox GROUP BY status"
SCHEMAS = b"SELECT count(*) FROM pg_namespace WHERE nspname LIKE 'pgoutbox_bench_%'"


@pytest.fixture
def here(empty_dsn: str) -> Iterator[Place]:
    with place(empty_dsn) as somewhere:
        yield somewhere


def bench(dsn: str, *words: str) -> tuple[int, dict[str, object]]:
    options = ["bench", "--dsn", dsn, "--scale", "0.001", "--json", *words]
    ended = CliRunner().invoke(group, options)
    return ended.exit_code, json.loads(ended.stdout)


def counts(somewhere: Place) -> dict[str, int]:
    with somewhere.connect() as conn:
        return dict(conn.execute(COUNTS).fetchall())


def test_the_result_is_the_floor_and_each_scenario_with_the_baseline_first(empty_dsn: str) -> None:
    code, result = bench(empty_dsn, "--scenario", "history,backoff", "--scenario", "dead")
    scenarios = result["scenarios"]
    assert code == 0
    assert set(result) == {"floor_msgs_per_s", "scenarios"}
    assert isinstance(scenarios, list)
    assert [one["scenario"] for one in scenarios] == ["baseline", "history", "backoff", "dead"]
    assert all(one["claim_ms_per_100"] > 0 and one["msgs_per_s"] > 0 for one in scenarios)
    assert all(one["finished"] == one["of"] == 100 for one in scenarios)


def test_nothing_is_left_in_the_database(empty_dsn: str) -> None:
    bench(empty_dsn, "--scenario", "bulk-backlog")
    with psycopg.connect(empty_dsn) as conn:
        assert conn.execute(SCHEMAS).fetchone() == (0,)


def test_a_scenario_that_fails_says_why_and_the_others_run(
    empty_dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(_place: Place, _scale: float) -> Found:
        raise RuntimeError("the worker\nexited with 1")

    monkeypatch.setitem(suite.SCENARIOS, "history", broken)
    code, result = bench(empty_dsn, "--scenario", "history,dead")
    assert isinstance(result["scenarios"], list)
    _, history, dead = result["scenarios"]
    assert code == 0
    assert history["failure"] == "the worker exited with 1"
    assert history["msgs_per_s"] is history["claim_ms_per_100"] is None
    assert history["holds"] is False
    assert dead["msgs_per_s"] > 0


@pytest.mark.parametrize(("limit", "code"), [(0.0, 1), (1e9, 0)])
def test_what_falls_short_is_a_failure_only_where_that_was_asked_for(
    empty_dsn: str, monkeypatch: pytest.MonkeyPatch, limit: float, code: int
) -> None:
    bar = Bar("dead", "claim_ms_per_100", "baseline", at_most=limit)
    monkeypatch.setattr("pgoutbox.bench.bars.BARS", (bar,))
    assert bench(empty_dsn, "--scenario", "dead")[0] == 0
    assert bench(empty_dsn, "--scenario", "dead", "--strict")[0] == code


def test_the_rows_of_a_long_life_are_as_a_worker_would_have_left_them(here: Place) -> None:
    some = {"count": 60}
    seeds.sow(
        here,
        (seeds.FINISHED, some),
        (seeds.LATER, some),
        (seeds.DEAD, some),
        (seeds.BLOCKED_LANES, some),
        (seeds.IN_LANES, {"count": 60, "lanes": 7}),
        (seeds.HALF_IN_ONE_LANE, {"count": 60, "lanes": 7}),
        (seeds.DUE, some),
    )
    assert counts(here) == {"done": 60, "pending": 300, "dead": 120}
    drained = drain(here, batch=25)
    assert [count for count, _ in drained.claims] == [25, 25, 10]
    assert counts(here) == {"done": 120, "pending": 240, "dead": 120}


def test_triggers_are_back_once_the_rows_are_there(here: Place) -> None:
    seeds.sow(here, (seeds.DUE, {"count": 10}))
    with here.connect() as conn:
        off = b"SELECT count(*) FROM pg_trigger WHERE tgenabled = 'D'"
        assert conn.execute(off).fetchone() == (0,)


def test_a_drain_ends_at_the_number_that_was_asked_for(here: Place) -> None:
    seeds.sow(here, (seeds.DUE, {"count": 400}))
    drained = drain(here, most=200)
    assert drained.finished == 200
    assert counts(here) == {"done": 200, "pending": 200}


def test_a_drain_that_takes_too_long_is_given_up_and_says_how_far_it_came(here: Place) -> None:
    seeds.sow(here, (seeds.DUE, {"count": 200}))
    found = of_loop(drain(here, patience=-1.0), 200)
    assert (found.finished, found.of, found.complete) == (0, 200, False)
    assert found.claim_ms_per_100 is None
    assert found.by == LOOP


def test_while_the_horizon_is_held_vacuum_removes_nothing(here: Place) -> None:
    seeds.sow(here, (seeds.DUE, {"count": 200}))
    with here.connect() as conn:
        with held_horizon(here):
            drain(here)
            conn.execute(b"VACUUM outbox")
            [(kept,)] = conn.execute(b"SELECT pg_relation_size('outbox')").fetchall()
        conn.execute(b"DELETE FROM outbox")
        conn.execute(b"VACUUM outbox")
        [(after,)] = conn.execute(b"SELECT pg_relation_size('outbox')").fetchall()
    assert kept > 0
    assert after == 0


def test_a_worker_that_cannot_finish_ends_all_the_same(
    here: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(workers, "PATIENCE", 2.0)
    seeds.sow(here, (seeds.DUE, {"count": 100}), (seeds.LATER, {"count": 100}))
    worked = workers.work(here, 200)
    assert worked.finished == 100
    assert worked.msgs_per_s > 0
    assert worked.claim_ms_per_100 is not None


@pytest.mark.parametrize(
    "name",
    ["xmin-worker", "lanes-uniform", "lanes-hot", "lanes-blocked", "xmin-hot-lane", "mixed"],
)
def test_a_worker_finishes_what_is_due(here: Place, name: str) -> None:
    found = suite.SCENARIOS[name](here, 0.001)
    assert found.complete
    assert found.claim_ms_per_100 is not None
    # What is left is behind a dead head.
    assert counts(here).get("pending", 0) == (100 if name == "lanes-blocked" else 0)


@pytest.mark.parametrize(
    ("mode", "left"), [("keep", {"done": 200}), ("delete", {}), ("archive", {})]
)
def test_retention_is_measured_where_it_does_what_its_mode_says(
    here: Place, mode: str, left: dict[str, int]
) -> None:
    found = suite.SCENARIOS[f"retention-{mode}"](here, 0.001)
    assert found.complete
    assert counts(here) == left
