"""The dashboard shows something, on a real Prometheus that scrapes a real worker and exporter."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from monitoring.dashboard import VARIABLES, dashboard, rows
from monitoring.limits import Limits, Pace
from monitoring.rules import groups
from tests.support.alerts import prometheus
from tests.support.exporters import ExporterProcess
from tests.support.observing import eventually
from tests.support.outbox_rows import insert
from tests.support.promql import selectors
from tests.support.workers import WorkerProcess, free_port

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path
    from typing import Any

    import psycopg

    from tests.support.alerts import Prometheus

CHOSEN = {"$namespace": ".*", "$database": ".*", "$destination": ".*", "$__rate_interval": "1m"}
QUIET = {"outbox_xmin_age_seconds"}
"""Has no samples where nobody knows the age of what holds the horizon."""


def filled(expression: str) -> str:
    for name, value in CHOSEN.items():
        expression = expression.replace(name, value)
    return expression


def expected(expression: str) -> bool:
    """Whether there is to be data: no operator runs here, and nothing fires."""
    names = {each.name for each in selectors(expression)}
    return not any(name.startswith(("outbox_scaler_", "ALERTS")) or name in QUIET for name in names)


@pytest.fixture
def scraping(dsn: str, conn: psycopg.Connection[Any], tmp_path: Path) -> Iterator[Prometheus]:
    """A Prometheus that has seen both, with our rules, and a message that was delivered."""
    worker = WorkerProcess(dsn, "noop://", DATABASE__INSECURE="true")
    exporter = ExporterProcess(dsn)
    targets = {"shop": [f"127.0.0.1:{each.port}" for each in (worker, exporter)]}
    nowhere = f"127.0.0.1:{free_port()}"
    with worker, exporter:
        worker.started()
        exporter.started()
        conn.execute("VACUUM outbox")
        insert(conn)
        with prometheus(
            tmp_path, groups(Limits(), Pace()), targets=targets, notify=nowhere
        ) as running:
            running.until("rate(outbox_messages_published_total[1m]) >= 0")
            running.until("outbox_table_last_vacuum_timestamp_seconds")
            yield running


@pytest.mark.broker
@pytest.mark.postgres
def test_every_panel_shows_something_and_every_choice_has_values(scraping: Prometheus) -> None:
    queries = [
        filled(query.expr) for row in rows() for panel in row.panels for query in panel.queries
    ]
    refused_or_empty = set(queries)

    def all_answer() -> bool:
        for query in list(refused_or_empty):
            if scraping.query(query) or not expected(query):
                refused_or_empty.discard(query)
        return not refused_or_empty

    try:
        eventually(all_answer, "an answer to every query")
    except AssertionError:
        pytest.fail("these queries find nothing:\n" + "\n".join(sorted(refused_or_empty)))
    for variable in VARIABLES:
        if variable.label != "database":
            assert any(
                each["metric"].get(variable.label)
                for each in scraping.query(filled(variable.selector))
            )


def test_panels_neither_overlap_nor_leave_the_board() -> None:
    taken: set[tuple[int, int]] = set()
    for panel in dashboard()["panels"]:
        place = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert not taken & cells
        assert place["x"] + place["w"] <= 24
        taken |= cells


def test_panels_have_ids_of_their_own_and_ask_the_chosen_prometheus() -> None:
    board = dashboard()
    ids = [panel["id"] for panel in board["panels"]]
    assert len(set(ids)) == len(ids)
    asked = {
        target["datasource"]["uid"]
        for panel in board["panels"]
        for target in panel.get("targets", [])
    }
    assert asked == {"${datasource}"}
    assert [each["name"] for each in board["templating"]["list"]] == [
        "datasource",
        "namespace",
        "database",
        "destination",
    ]


def test_the_dashboard_is_plain_json() -> None:
    assert json.loads(json.dumps(dashboard())) == dashboard()
