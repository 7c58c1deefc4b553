"""Hours of virtual time in which everything goes wrong that can, and nothing comes of it."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support.many_databases import databases

ROOT = Path(__file__).parents[2]
SEED = random.SystemRandom().randrange(1_000_000)
MOST_GROWN_MB = 6.0
"""From the second hour to the last, caches that fill included. What is kept for each of 5,760 ticks
would come to more, and what is kept of each object that Python tracks is counted, too."""
MOST_GROWN_OBJECTS = 0.03
Counted = dict[str, Any]


def day(
    folder: Path, server: str, template: str, *, hours: float, pace: float, patience: float
) -> Counted:
    """What `tests.support.day` counted."""
    arguments = [f"--hours={hours}", f"--pace={pace}", f"--seed={SEED}", f"--folder={folder}"]
    with databases(server, template, 2) as dsns:
        ended = subprocess.run(
            [sys.executable, "-m", "tests.support.day", *arguments, *(f"--dsn={d}" for d in dsns)],
            cwd=ROOT,
            env=os.environ | {"PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'operator'}"},
            capture_output=True,
            text=True,
            timeout=patience,
            check=False,
        )
    log = (folder / "log").read_text(encoding="utf-8")[-20_000:]
    print(f"seed {SEED}\n{ended.stdout}")  # noqa: T201 - how to do it again
    assert ended.returncode == 0, f"seed {SEED}\n{ended.stderr}\n{log}"
    counted: Counted = json.loads(ended.stdout)
    return counted


def nothing_came_of_it(counted: Counted) -> None:
    said = f"seed {SEED}: {json.dumps(counted, indent=1)}"
    assert counted["wrong"] == [], said
    assert sum(counted["faults"].values()) > 10, said
    end = counted["at_the_end"]
    assert end["not ready"] == [], said
    assert end["leader"] == "operator", said
    assert {end["replicas"][name] for name in ("steady-a", "steady-b")} == {3}, said
    assert end["replicas"]["advice-a"] == 2, said
    # Neither was the law asleep.
    assert counted["scaled"]["wave-a"] > 1, said
    assert end["tasks after the stop"] == [], said
    assert end["connections after the stop"] == [0, 0], said
    assert end["descriptors left over"] == 0, said
    assert counted["held"][-1]["connections"] == [1, 1], said


def one_look_a_tick(counted: Counted) -> None:
    """In the calm at the end, where none is missing either."""
    before, after = counted["held"][-2:]
    for name in ("a", "b"):
        looks = after["looks"][name] - before["looks"][name]
        due = after["ticks"][name] - before["ticks"][name]
        assert due > 5
        assert due - 2 <= looks <= due + 1


@pytest.mark.timeout(300)
def test_faults_of_all_kinds_change_no_replicas_and_leave_nothing_behind(
    tmp_path: Path, server_dsn: str, template: str
) -> None:
    counted = day(tmp_path, server_dsn, template, hours=0.5, pace=0.25, patience=280)
    nothing_came_of_it(counted)
    one_look_a_tick(counted)


@pytest.mark.bench
@pytest.mark.timeout(3600)
def test_a_day_of_faults_takes_no_memory_and_changes_no_replicas(
    tmp_path: Path, server_dsn: str, template: str
) -> None:
    counted = day(tmp_path, server_dsn, template, hours=24.0, pace=1.0, patience=3500)
    nothing_came_of_it(counted)
    one_look_a_tick(counted)
    early = next(held for held in counted["held"] if held["hour"] == 2)
    late = counted["held"][-1]
    assert late["rss_mb"] - early["rss_mb"] <= MOST_GROWN_MB
    assert late["objects"] / early["objects"] - 1 <= MOST_GROWN_OBJECTS
    # An idle connection to the API server takes four, both ends of it and the door between; one
    # leaked by each fault of even the rarest kind would take more.
    assert late["descriptors"] <= early["descriptors"] + 20
    assert late["tasks"] <= early["tasks"] + 10
    for name in ("a", "b"):
        # A database that is opened anew is looked at at once.
        assert late["looks"][name] <= late["ticks"][name] + sum(counted["faults"].values())
