"""Destinations that nobody serves, and commands about destinations beside a real outbox."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from click.testing import CliRunner

from pgoutbox.cli.main import group
from tests.support.observing import count, eventually
from tests.support.outbox_rows import insert
from tests.support.workers import WorkerProcess

if TYPE_CHECKING:
    import psycopg
    from click.testing import Result


def pgoutbox(dsn: str, *arguments: str, **environ: str) -> Result:
    base = {"PGOUTBOX_DSN": dsn, "PGOUTBOX_DATABASE__INSECURE": "true"}
    return CliRunner().invoke(group, arguments, env=base | environ, catch_exceptions=False)


def served(conn: psycopg.Connection) -> None:
    """A message for the destination that the worker has, and the proof that it had its turn."""
    insert(conn)
    insert(conn, ordering_key="o-1")
    eventually(
        lambda: count(conn, "destination = 'default' AND status <> 'done'") == 0,
        "the served messages to be delivered",
    )


def test_rows_for_a_destination_that_the_worker_lacks_stay_as_they_are_and_are_called_unserved(
    dsn: str, conn: psycopg.Connection
) -> None:
    insert(conn, destination="mail")
    insert(conn, destination="mail", ordering_key="o-1")
    untouched = conn.execute("SELECT o::text FROM outbox o ORDER BY id").fetchall()
    with WorkerProcess(dsn, "noop://").started():
        # The worker claims, sweeps and heartbeats around them, and comes back for more.
        served(conn)
        eventually(lambda: conn.execute("SELECT FROM outbox_workers").rowcount == 1, "a heartbeat")
        served(conn)
        found = conn.execute(
            "SELECT o::text FROM outbox o WHERE destination = 'mail' ORDER BY id"
        ).fetchall()
        assert found == untouched
        assert count(conn, "destination = 'mail' AND status = 'pending' AND attempts = 0") == 2

        told = pgoutbox(dsn, "status")
        assert "no worker serves mail: 2 undelivered" in told.stdout
        assert "no worker serves default" not in told.stdout
        assert json.loads(pgoutbox(dsn, "status", "--json").stdout)["unserved"] == ["mail"]

        # With the worker's own settings.
        checked = json.loads(pgoutbox(dsn, "check", "--to", "noop://", "--json").stdout)
        rules = [warning["rule"] for warning in checked["warnings"]]
        assert [rule for rule in rules if rule.endswith("with these settings: mail")]


def test_nothing_is_unserved_once_a_worker_has_all_destinations(
    dsn: str, conn: psycopg.Connection
) -> None:
    insert(conn, destination="mail")
    with WorkerProcess(
        dsn, "noop://", DESTINATIONS__MAIL__URL="noop://", DESTINATIONS__MAIL__PUBLISH_TIMEOUT="1"
    ).started():
        eventually(lambda: count(conn, "status = 'done'") == 1, "the message to be delivered")
        assert "no worker serves" not in pgoutbox(dsn, "status").stdout


def test_a_probe_leaves_the_outbox_alone(dsn: str, conn: psycopg.Connection) -> None:
    insert(conn)
    before = conn.execute("SELECT o::text FROM outbox o").fetchall()
    assert pgoutbox(dsn, "destinations", "test", "default", "--to", "noop://").exit_code == 0
    assert conn.execute("SELECT o::text FROM outbox o").fetchall() == before
    assert conn.execute("SELECT FROM outbox_workers").rowcount == 0
