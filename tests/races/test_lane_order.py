"""Lanes under everything that goes wrong, judged by an oracle that knows the commit order."""

from __future__ import annotations

import random
import uuid
from typing import TYPE_CHECKING

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from pgoutbox.dispatch.deliver import Deliverer
from tests.support.order_drill import Plan, drill, shrunk

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from pgoutbox.destinations.destination import Destination
    from pgoutbox.dispatch.flight import Flight
    from tests.support.order_oracle import Verdict

    Run = Callable[..., Verdict]

# Left to chance, and told on failure: `python -m benchmarks.order --seed N` tries it again.
SEED = random.SystemRandom().randrange(1_000_000)

# Each id changes places with another one of the same eight.
SHUFFLED_IDS = b"""
CREATE FUNCTION shuffle() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN NEW.id := NEW.id # 7; RETURN NEW; END $$;
CREATE TRIGGER zzz_shuffle BEFORE INSERT ON outbox FOR EACH ROW EXECUTE FUNCTION shuffle();
"""


@pytest.fixture
def run(server_dsn: str, template: str, tmp_path: Path) -> Run:
    """Runs a plan in a database of its own, as often as wanted."""

    def run(plan: Plan, change: bytes = b"") -> Verdict:
        name = f"pgoutbox_drill_{uuid.uuid4().hex[:12]}"
        dsn = make_conninfo(server_dsn, dbname=name)
        folder = tmp_path / name
        folder.mkdir()
        with psycopg.connect(server_dsn, autocommit=True) as admin:
            admin.execute(f"CREATE DATABASE {name} TEMPLATE {template}".encode())
            try:
                with psycopg.connect(dsn) as conn:
                    conn.execute(change)
                return drill(plan, dsn, folder)
            finally:
                admin.execute(f"DROP DATABASE {name} WITH (FORCE)".encode())

    return run


@pytest.mark.timeout(400)
def test_lanes_keep_their_commit_order_while_workers_are_killed_and_publishers_fail(
    run: Run,
) -> None:
    plan = Plan(seed=SEED, retention=random.Random(SEED).choice(("keep", "delete", "archive")))
    verdict = run(plan)
    if verdict.problems:
        less, found = shrunk(plan, run, verdict)
        pytest.fail(f"{plan}\n{verdict}\n\nthe smallest that was seen to fail:\n{less}\n{found}")
    assert verdict.counts["messages done"] > plan.messages * 0.6
    for outcome in ("RetryableError", "Defer", "PermanentError"):
        assert verdict.counts[f"publishes {outcome}"]


def test_the_drill_notices_that_rows_are_numbered_in_another_order_than_they_commit(
    run: Run,
) -> None:
    plan = Plan(seed=SEED, messages=600, processes=0, disturbances=0, faults=0.0)
    problems = run(plan, SHUFFLED_IDS).problems
    assert any("has the higher id" in problem for problem in problems)
    assert any("was published before" in problem for problem in problems)


def test_the_drill_notices_that_messages_come_to_the_publisher_of_another_destination(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    spawn = Deliverer._spawn

    def astray(self: Deliverer, flights: Sequence[Flight], destination: Destination) -> None:
        name = "skipping" if destination.name == "default" else destination.name
        spawn(self, flights, self.destinations[name])

    monkeypatch.setattr(Deliverer, "_spawn", astray)
    plan = Plan(seed=SEED, messages=600, processes=0, disturbances=0, faults=0.0)
    problems = run(plan).problems
    assert problems
    assert all("is for default" in one and "to skipping" in one for one in problems)
