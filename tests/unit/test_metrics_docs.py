"""docs/metrics.md lists what is exported, and nothing else."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

from pgoutbox.database.horizon import (
    LATE_SECONDS,
    LATE_TRANSACTIONS,
    LATE_UNDATED_TRANSACTIONS,
)
from pgoutbox.telemetry.catalogue import BY_NAME, METRICS, page

if TYPE_CHECKING:
    import pytest

PAGE = Path(__file__).parents[2] / "docs" / "metrics.md"


def test_the_tables_are_those_of_the_catalogue(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(PAGE.parents[1])
    assert page.main(["--check"]) == 0, capsys.readouterr().err


def test_the_page_has_every_table() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert set(re.findall(r"<!-- table: ([a-z ]+) -->", text)) == set(page.TABLES)


def test_a_page_that_is_out_of_date_is_told_and_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    found = tmp_path / page.PAGE
    found.parent.mkdir()
    found.write_text(
        "above\n<!-- table: exporter -->\nold\n<!-- end -->\nbelow\n", encoding="utf-8"
    )
    assert page.main(["--check"]) == 1
    assert "--write" in capsys.readouterr().err
    assert page.main(["--write"]) == 0
    assert page.main(["--check"]) == 0
    text = found.read_text(encoding="utf-8")
    assert text.startswith("above\n")
    assert text.endswith("below\n")
    assert "| `outbox_pending_messages` | gauge |" in text
    assert "old\n" not in text


def test_names_say_what_they_are() -> None:
    assert len(BY_NAME) == len(METRICS)
    for metric in METRICS:
        assert re.fullmatch(r"outbox_[a-z_]+", metric.name)
        assert (metric.type == "counter") == metric.name.endswith("_total")
        assert (metric.type == "histogram") == bool(metric.buckets)
        assert not metric.help.endswith(".")
        assert metric.values.keys() <= set(metric.labels)


def test_the_documented_alert_on_the_horizon_has_the_limits_of_the_warning() -> None:
    text = PAGE.read_text(encoding="utf-8")
    seconds = re.findall(r"outbox_xmin_age_seconds > (\d+)", text)
    transactions = re.findall(r"outbox_xmin_age_transactions > (\d+)", text)
    assert [float(each) for each in seconds] == [LATE_SECONDS]
    assert list(map(int, transactions)) == [LATE_TRANSACTIONS, LATE_UNDATED_TRANSACTIONS]
