"""The drill of tests/races/test_lane_order.py with ten times the messages: `make soak`."""

# ruff: noqa: INP001, D103, S101, S311 - a test: its name says it, and its dice are no secret

from __future__ import annotations

import random

import pytest

from benchmarks.order import MODES, PATIENCE, judged
from tests.support.order_drill import Plan

SEED = random.SystemRandom().randrange(1_000_000)
SHRINK_SECONDS = 600.0


@pytest.mark.bench
@pytest.mark.timeout(3600)
def test_200_000_messages_keep_their_order_while_workers_are_killed_and_publishers_fail() -> None:
    plan = Plan(
        seed=SEED,
        messages=200_000,
        keys=200,
        disturbances=60,
        retention=random.Random(SEED).choice(MODES),
        patience=PATIENCE,
    )
    print(plan)  # noqa: T201 - whoever waits that long wants to see what for
    verdict, smaller = judged(plan, SHRINK_SECONDS)
    print(verdict)  # noqa: T201 - what was counted is worth a look
    assert not verdict.problems, f"{plan}\n{verdict}\n\n{smaller}"
    # The others wait behind a dead head.
    assert verdict.counts["messages done"] > 0.6 * plan.messages
