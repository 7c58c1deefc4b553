"""The dashboard shows something, on a real Prometheus that scrapes real components."""

from __future__ import annotations

import asyncio
import json
from contextlib import contextmanager
from typing import TYPE_CHECKING

import psycopg
import pytest

from monitoring.dashboard import VARIABLES, dashboard, rows
from monitoring.limits import Limits, Pace
from monitoring.rules import groups
from tests.support.alerts import prometheus
from tests.support.exporters import ExporterProcess
from tests.support.kube import scaler
from tests.support.observing import eventually
from tests.support.operating import running
from tests.support.outbox_rows import insert
from tests.support.promql import selectors
from tests.support.workers import WorkerProcess, free_port

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.support.alerts import Prometheus

CHOSEN = {"$namespace": ".*", "$database": ".*", "$destination": ".*", "$__rate_interval": "1m"}
QUIET = {"outbox_xmin_age_seconds"}
"""Has no samples where nobody knows the age of what holds the horizon."""


def filled(expression: str) -> str:
    for name, value in CHOSEN.items():
        expression = expression.replace(name, value)
    return expression


def expected(expression: str) -> bool:
    """Whether there is to be data: nothing fires here."""
    names = {each.name for each in selectors(expression)}
    return not names & {"ALERTS", *QUIET}


@contextmanager
def scraping(dsn: str, folder: Path, operator: int) -> Iterator[Prometheus]:
    """One that has seen all of them, with our rules, and a message that was delivered."""
    worker = WorkerProcess(dsn, "noop://", DATABASE__INSECURE="true")
    exporter = ExporterProcess(dsn)
    targets = {
        "shop": [f"127.0.0.1:{each.port}" for each in (worker, exporter)],
        "pgoutbox": [f"127.0.0.1:{operator}"],
    }
    nowhere = f"127.0.0.1:{free_port()}"
    with worker, exporter, psycopg.connect(dsn, autocommit=True) as conn:
        worker.started()
        exporter.started()
        conn.execute("VACUUM outbox")
        insert(conn)
        with prometheus(
            folder, groups(Limits(), Pace()), targets=targets, notify=nowhere
        ) as running:
            running.until("rate(outbox_messages_published_total[1m]) >= 0")
            running.until("outbox_table_last_vacuum_timestamp_seconds")
            yield running


@pytest.mark.broker
@pytest.mark.postgres
async def test_every_panel_shows_something_and_every_choice_has_values(
    dsn: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("POD_ID", "test")
    async with running(tmp_path / "token", dsn=dsn) as run:
        await run.look_after(scaler(seedRatePerReplica="50"))
        await asyncio.to_thread(look_at_everything, dsn, tmp_path, run.port)


def look_at_everything(dsn: str, folder: Path, operator: int) -> None:
    with scraping(dsn, folder, operator) as server:
        queries = [query.expr for row in rows() for panel in row.panels for query in panel.queries]
        refused_or_empty = {filled(query) for query in queries}

        def all_answer() -> bool:
            for query in list(refused_or_empty):
                if server.query(query) or not expected(query):
                    refused_or_empty.discard(query)
            return not refused_or_empty

        try:
            eventually(all_answer, "an answer to every query")
        except AssertionError:
            pytest.fail("these queries find nothing:\n" + "\n".join(sorted(refused_or_empty)))
        for variable in VARIABLES:
            found = server.query(filled(variable.selector))
            assert any(each["metric"].get(variable.label) for each in found)


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
