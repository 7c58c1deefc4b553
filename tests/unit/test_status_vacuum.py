from __future__ import annotations

import pytest

from pgoutbox.cli.horizon import Seen
from pgoutbox.cli.status import Status
from pgoutbox.cli.status_view import sentences
from pgoutbox.database.statistics import Statistics
from pgoutbox.database.upkeep import Upkeep


def told(dead: int, live: int, vacuumed_at: float | None = None) -> list[str]:
    status = Status(
        schema="public",
        statistics=Statistics(at=10_000.0, cap=10, destinations={}, workers=()),
        attempts={},
        seen=Seen(None),
        upkeep=Upkeep(live=live, dead=dead, vacuumed_at=vacuumed_at),
    )
    return [sentence for sentence in sentences(status) if "vacuum" in sentence]


@pytest.mark.parametrize(("dead", "live"), [(0, 0), (10_000, 0), (9_999, 5), (110_000, 1_000_000)])
def test_as_many_dead_rows_as_autovacuum_lets_come_together_are_nothing_to_tell(
    dead: int, live: int
) -> None:
    assert told(dead, live) == []


def test_ten_times_as_many_are_told_with_when_vacuum_last_came() -> None:
    [sentence] = told(110_001, 1_000_000, vacuumed_at=2_800.0)
    assert "110001 dead rows" in sentence
    assert "last vacuumed 2h00m ago" in sentence
    [sentence] = told(10_001, 0)
    assert "never vacuumed" in sentence
