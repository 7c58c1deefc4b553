"""Which lanes are taken to have more, from what one claim brought."""

from __future__ import annotations

import pytest

from pgoutbox.dispatch.claimer import run_of_each
from pgoutbox.dispatch.lanes import Asked, Runs
from pgoutbox.testing import make_message


def brought(lanes: int, each: int, *, width: int) -> Runs:
    runs = {f"k{lane}": [make_message()] * each for lane in range(lanes)}
    return Runs(runs, "", ended=True, found=True, missed=(), width=width)


@pytest.mark.parametrize(
    ("rows", "lanes", "each", "width", "run"),
    [
        # There was room for more: a lane that brought less than a whole run has no more.
        (200, 5, 16, 16, 16),
        (200, 50, 3, 16, 16),
        (200, 0, 0, 16, 16),
        # There was not: each lane brought its share of what there was.
        (200, 50, 4, 16, 4),
        (50, 50, 1, 4, 1),
        (200, 150, 2, 5, 1),
        (100, 1, 100, 100, 100),
    ],
)
def test_a_lane_that_got_its_share_of_a_claim_without_room_for_more_may_have_more(
    rows: int, lanes: int, each: int, width: int, run: int
) -> None:
    asked = Asked("default", lanes=200, rows=rows, run=100)
    assert run_of_each(asked, brought(lanes, each, width=width)) == run
