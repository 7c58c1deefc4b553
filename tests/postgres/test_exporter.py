"""The exporter against a real server: as a process, and one look at a time."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest
from prometheus_client.exposition import generate_latest
from psycopg.conninfo import make_conninfo
from structlog.testing import capture_logs

from pgoutbox.database.conninfo import DatabaseOptions
from pgoutbox.telemetry.exporter import Exporter
from pgoutbox.telemetry.exporter_source import Source
from tests.support.exporters import ExporterProcess, Samples, samples
from tests.support.horizons import held_snapshot, pass_transactions
from tests.support.observing import eventually
from tests.support.outbox_rows import insert
from tests.support.proxy import Proxy
from tests.support.roles import login_role
from tests.support.waiting import until_counted, until_vacuumed

if TYPE_CHECKING:
    from collections.abc import Callable

    import psycopg

STATS = "EXECUTE ON FUNCTION outbox_stats(integer)"
HORIZON = "EXECUTE ON FUNCTION outbox_horizon()"
DEAD = {"status": "dead", "pending_since": None}
UP = ("outbox_collector_up",)
HELD = {"outbox_xmin_age_seconds", "outbox_xmin_age_transactions"}
TABLE = {"outbox_table_live_tuples", "outbox_table_dead_tuples"}
LAST_SUCCESS = "outbox_collector_last_success_timestamp_seconds"
OWN = {"outbox_collector_up", "outbox_collector_duration_seconds", "outbox_build_info"}


def source_of(dsn: Callable[[], str], *, timeout: float = 2.0) -> Source:
    return Source(DatabaseOptions(dsn=dsn, statement_timeout=timeout))


async def seen(source: Source) -> Samples:
    await source.refresh()
    return samples(generate_latest(Exporter([source]).registry).decode())


def test_a_process_serves_what_the_table_holds_until_it_is_told_to_stop(
    dsn: str, conn: psycopg.Connection
) -> None:
    insert(conn, destination="bank")
    insert(conn, destination="bank", **DEAD)
    with ExporterProcess(dsn).started() as exporter, held_snapshot(dsn):
        eventually(lambda: exporter.scrape()[UP] == 1, "a look")
        told = exporter.scrape()
        assert told["outbox_pending_messages", "bank", "ready"] == 1
        assert told["outbox_dead_letter_messages", "bank"] == 1
        assert told["outbox_workers", "running"] == 0
        assert [exporter.get(path) for path in ("/healthz", "/livez", "/readyz")] == [200] * 3
        pass_transactions(conn)

        def held_back() -> bool:
            return exporter.scrape()["outbox_xmin_age_transactions",] >= 200

        eventually(held_back, "a horizon")
        exit_ = exporter.stop()
        assert exit_.code == 0
        assert exit_.seconds < 2


def test_an_outage_takes_the_gauges_away_and_they_come_back_by_themselves(
    dsn: str, conn: psycopg.Connection
) -> None:
    insert(conn, destination="bank")
    with Proxy(dsn) as proxy, ExporterProcess(proxy.dsn).started() as exporter:
        eventually(lambda: exporter.scrape()[UP] == 1, "a look")
        proxy.refuse()
        eventually(lambda: exporter.scrape()[UP] == 0, "a look that fails")
        failing = exporter.scrape()
        assert {name for name, *_ in failing} == OWN | {LAST_SUCCESS}
        assert failing[LAST_SUCCESS,] < time.time()
        assert exporter.get("/healthz") == 200
        proxy.accept()
        eventually(lambda: exporter.scrape()[UP] == 1, "a look that succeeds again")
        assert ("outbox_pending_messages", "bank", "ready") in exporter.scrape()
        exporter.wait_for("database recovered")
        assert exporter.events("database failed")


def test_a_database_that_is_silent_neither_keeps_it_alive_nor_its_gauges(dsn: str) -> None:
    with Proxy(dsn) as proxy, ExporterProcess(proxy.dsn).started() as exporter:
        eventually(lambda: exporter.scrape()[UP] == 1, "a look")
        proxy.freeze()
        eventually(lambda: exporter.scrape()[UP] == 0, "a look that fails")
        proxy.until_connected(1)
        exit_ = exporter.stop()
        assert (exit_.code, exit_.seconds < 2) == (0, True)


def test_a_port_that_is_taken_is_an_error_in_one_sentence(dsn: str) -> None:
    with ExporterProcess(dsn).started() as first:
        with ExporterProcess(dsn, "--port", str(first.port)).start() as second:
            assert second.ended() == 1
            (line,) = second.lines
        assert f"port {first.port}" in line["text"]


async def test_scrapes_ask_nobody(dsn: str) -> None:
    connections = []

    def address() -> str:
        connections.append(1)
        return dsn

    source = source_of(address)
    await source.refresh()
    registry = Exporter([source]).registry
    pages = {generate_latest(registry).decode().count("outbox_workers{") for _ in range(50)}
    assert (pages, len(connections)) == ({3}, 1)


async def test_a_destination_that_is_empty_again_is_at_0(
    dsn: str, conn: psycopg.Connection
) -> None:
    source = source_of(lambda: dsn)
    insert(conn, destination="bank")
    assert (await seen(source))["outbox_pending_messages", "bank", "ready"] == 1
    conn.execute("DELETE FROM outbox")
    told = await seen(source)
    assert {value for key, value in told.items() if "bank" in key} == {0.0}
    assert ("outbox_oldest_pending_age_seconds", "bank") in told


async def test_row_versions_and_the_last_vacuum_are_told_of_the_table_in_this_schema(
    dsn: str, conn: psycopg.Connection
) -> None:
    conn.execute("CREATE SCHEMA elsewhere CREATE TABLE outbox (id int)")
    source = source_of(lambda: dsn)
    for _ in range(3):
        insert(conn, destination="bank")
    conn.execute("DELETE FROM outbox WHERE id = (SELECT min(id) FROM outbox)")
    assert ("outbox_table_last_vacuum_timestamp_seconds",) not in await seen(source)
    until_counted(conn, live=2)
    conn.execute("VACUUM outbox")
    until_vacuumed(conn)
    told = await seen(source)
    assert told["outbox_table_live_tuples",] == 2
    assert told["outbox_table_dead_tuples",] == 0
    assert told["outbox_table_last_vacuum_timestamp_seconds",] == pytest.approx(time.time(), abs=60)


def test_a_table_that_somebody_locked_keeps_no_scrape_waiting(
    dsn: str, conn: psycopg.Connection
) -> None:
    insert(conn, destination="bank")
    with ExporterProcess(dsn).started() as exporter:
        eventually(lambda: exporter.scrape()[UP] == 1, "a look")
        waits = []
        with conn.transaction():
            conn.execute("LOCK outbox IN ACCESS EXCLUSIVE MODE")

            def not_up() -> bool:
                began = time.monotonic()
                told = exporter.scrape()
                waits.append(time.monotonic() - began)
                return told[UP] == 0

            eventually(not_up, "a look that was not finished in time")
            assert ("outbox_dead_letter_messages", "bank") not in exporter.scrape()
        assert max(waits) < 1
        eventually(lambda: exporter.scrape()[UP] == 1, "a look that succeeds again")


async def test_statistics_that_are_not_finished_in_time_take_only_their_own_gauges_away(
    dsn: str, conn: psycopg.Connection
) -> None:
    source = source_of(lambda: dsn, timeout=0.2)
    insert(conn, destination="bank")
    with held_snapshot(dsn):
        pass_transactions(conn)
        with conn.transaction(), capture_logs() as lines:
            conn.execute("LOCK outbox IN ACCESS EXCLUSIVE MODE")
            told = await seen(source)
        assert told[UP] == 0
        assert told["outbox_xmin_age_transactions",] >= 200
        assert {name for name, *_ in told} == OWN | HELD | TABLE
        assert "statement timeout" in lines[0]["error"]
        again = await seen(source)
    assert again[UP] == 1
    assert again["outbox_pending_messages", "bank", "ready"] == 1


async def test_a_role_that_may_ask_for_nothing_but_the_horizon_is_told_of_it(
    dsn: str, conn: psycopg.Connection
) -> None:
    with login_role(dsn, HORIZON) as role, held_snapshot(dsn):
        pass_transactions(conn)
        told = await seen(source_of(lambda: role.dsn))
    assert told[UP] == 0
    assert told["outbox_xmin_age_transactions",] >= 200


async def test_a_password_that_changes_is_taken_up_at_the_next_look(dsn: str) -> None:
    given = [make_conninfo(dsn, dbname="nowhere"), dsn]
    source = source_of(lambda: given.pop(0))
    assert [(await seen(source))[UP] for _ in range(2)] == [0, 1]


async def test_a_database_without_the_outbox_is_not_up_and_the_log_says_what_to_run(
    empty_dsn: str,
) -> None:
    with capture_logs() as lines:
        told = await seen(source_of(lambda: empty_dsn))
    assert {name for name, *_ in told} == OWN
    assert "run `pgoutbox migrate`" in lines[0]["error"]


@pytest.mark.parametrize(
    ("name", "answer"),
    [
        ("outbox_stats(cap integer)", "{}"),
        ("outbox_stats(cap integer)", "[]"),
        ("outbox_horizon()", "{}"),
    ],
)
async def test_an_answer_that_nobody_knows_is_not_up_and_ends_nothing(
    dsn: str, conn: psycopg.Connection, name: str, answer: str
) -> None:
    body = f"RETURNS jsonb LANGUAGE sql AS $$ SELECT jsonb '{answer}' $$"
    conn.execute(f"DROP FUNCTION {name}".encode())
    conn.execute(f"CREATE FUNCTION {name} {body}".encode())
    with capture_logs() as lines:
        assert (await seen(source_of(lambda: dsn)))[UP] == 0
    assert lines[0]["event"] == "database failed"


@pytest.mark.parametrize("grants", [(STATS,), (STATS, HORIZON)])
async def test_two_grants_suffice_and_without_the_second_only_the_horizon_is_missing(
    dsn: str, grants: tuple[str, ...]
) -> None:
    with login_role(dsn, *grants) as role:
        told = await seen(source_of(lambda: role.dsn))
    assert told[UP] == 1
    assert (("outbox_xmin_age_transactions",) in told) == (len(grants) == 2)
