"""docs/metrics.md lists what is exported, and nothing else."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from pgoutbox.database.conninfo import DatabaseOptions
from pgoutbox.database.horizon import (
    LATE_SECONDS,
    LATE_TRANSACTIONS,
    LATE_UNDATED_TRANSACTIONS,
    Horizon,
)
from pgoutbox.telemetry.exporter import Exporter, Source
from pgoutbox.telemetry.metrics import Metrics
from tests.unit.test_exporter import HOLDER, found

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

PAGE = Path(__file__).parents[2] / "docs" / "metrics.md"
ROW = re.compile(r"^\| `(outbox_\w+)` \|([^|]*)\|", re.MULTILINE)
SUFFIX = {"counter": "_total", "info": "_info"}


def documented(title: str) -> dict[str, set[str]]:
    """The names in the tables below this heading, with their labels."""
    section = PAGE.read_text(encoding="utf-8").split(f"\n## {title}\n")[1].split("\n## ")[0]
    return {
        name: set(re.findall(r"`(\w+)`", re.sub(r":.*", "", labels)))
        for name, labels in ROW.findall(section)
    }


def exported(registry: CollectorRegistry) -> dict[str, set[str]]:
    return {
        family.name + SUFFIX.get(family.type, ""): {
            name for sample in family.samples for name in sample.labels if name != "le"
        }
        for family in registry.collect()
        if family.name.startswith("outbox_")
    }


def test_each_metric_of_a_worker_is_documented_with_its_labels() -> None:
    metrics = Metrics(destinations=["orders"], slots=1)
    metrics.watch_pool(dict)
    assert documented("Of a worker") == exported(metrics.registry)


def test_each_metric_of_the_exporter_is_documented_with_its_labels() -> None:
    source = Source(DatabaseOptions(dsn=str))
    held = Horizon(hidden=False, holders=(replace(HOLDER, seconds=1.0),))
    source._look = found(held, bank={"ready": 1})
    source.duration = 0.1
    assert documented("Of the exporter") == exported(Exporter([source]).registry)


def test_the_documented_alert_on_the_horizon_has_the_limits_of_the_warning() -> None:
    page = PAGE.read_text(encoding="utf-8")
    seconds = re.findall(r"outbox_xmin_age_seconds > (\d+)", page)
    transactions = re.findall(r"outbox_xmin_age_transactions > (\d+)", page)
    assert [float(each) for each in seconds] == [LATE_SECONDS]
    assert list(map(int, transactions)) == [LATE_TRANSACTIONS, LATE_UNDATED_TRANSACTIONS]
