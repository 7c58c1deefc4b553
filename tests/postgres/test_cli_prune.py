"""``pgoutbox prune``: what was delivered long ago goes, and nothing else."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import psycopg
from click.testing import CliRunner

from pgoutbox.cli.main import group
from tests.support.outbox_rows import fill, insert
from tests.support.roles import as_worker, login_role

if TYPE_CHECKING:
    import pytest
    from click.testing import Result

DONE = {"status": "done", "pending_since": None}
OLD, RECENT = DONE | {"done_at": "2020-01-01Z"}, DONE | {"done_at": "2999-01-01Z"}
DEAD = {"status": "dead", "pending_since": None, "available_at": "2020-01-01Z"}


def prune(dsn: str, *words: str, **env: str) -> Result:
    environ = {"PGOUTBOX_DSN": as_worker(dsn), "PGOUTBOX_DSN_FILE": None, **env}
    return CliRunner().invoke(group, ["prune", *words], env=environ, catch_exceptions=False)


def fill_done(conn: psycopg.Connection, count: int) -> None:
    fill(conn, count, status="'done'", pending_since="NULL", done_at="'2020-01-01Z'::timestamptz")


def left(conn: psycopg.Connection) -> list[int]:
    return [number for (number,) in conn.execute("SELECT id FROM outbox ORDER BY id")]


def test_only_what_was_delivered_long_ago_is_deleted(dsn: str, conn: psycopg.Connection) -> None:
    insert(conn, **OLD)
    skipped = DEAD | {"ordering_key": "k", "done_at": "2020-01-01Z"}
    kept = [insert(conn, **row) for row in (RECENT, DEAD, skipped, {})]
    result = prune(dsn, "--yes")
    assert (result.exit_code, result.stdout) == (0, "1 delivered message deleted\n")
    assert left(conn) == kept


def test_how_long_it_is_kept_is_what_the_settings_or_the_command_say(
    dsn: str, conn: psycopg.Connection
) -> None:
    conn.execute("SET TimeZone = 'UTC'")
    fill(conn, 1, status="'done'", pending_since="NULL", done_at="now() - interval '3 days'")

    def would(*words: str, **env: str) -> int:
        told = json.loads(prune(dsn, "--dry-run", "--json", *words, **env).stdout)
        assert told["deleted"] == 0
        return int(told["left"])

    assert would() == 0
    assert would(PGOUTBOX_RETENTION__DAYS="2") == 1
    assert would("--older-than", "2d") == 1
    assert would("--older-than", "100h", PGOUTBOX_RETENTION__DAYS="2") == 0


def test_it_goes_on_batch_by_batch_until_its_time_is_up(dsn: str, conn: psycopg.Connection) -> None:
    fill_done(conn, 50)
    told = json.loads(
        prune(dsn, "--yes", "--json", "--batch", "1", "--time-budget", "0.001").stdout
    )
    assert 0 <= told["deleted"] < 50
    assert told["left"] == 50 - told["deleted"] == len(left(conn))
    told = json.loads(prune(dsn, "--yes", "--json", "--batch", "7").stdout)
    assert told["left"] == 0
    assert left(conn) == []


def test_without_a_yes_nothing_is_deleted(dsn: str, conn: psycopg.Connection) -> None:
    number = insert(conn, **OLD)
    result = prune(dsn)
    assert result.exit_code == 2
    assert "this would delete 1 delivered message: say --yes" in result.stderr
    assert (
        "nothing was done; without --dry-run this would delete 1 delivered"
        in prune(dsn, "--dry-run").stdout
    )
    assert left(conn) == [number]


def test_it_takes_turns_with_the_workers(dsn: str, conn: psycopg.Connection) -> None:
    fill_done(conn, 5)
    with psycopg.connect(dsn) as worker:
        worker.execute("SELECT pg_advisory_xact_lock(7239162507031187526)")
        waited = prune(dsn, "--yes", "--time-budget", "0.3")
        assert (waited.exit_code, waited.stdout) == (0, "0 delivered messages deleted; 5 left\n")
        worker.rollback()
    assert prune(dsn, "--yes").stdout == "5 delivered messages deleted\n"


def test_under_the_mode_archive_what_has_a_day_there_is_moved_and_not_deleted(
    dsn: str, conn: psycopg.Connection
) -> None:
    conn.execute("SELECT outbox_archive_prepare(1)")
    moved = insert(conn, **DONE, done_at=conn.execute("SELECT now()").fetchall()[0][0])
    insert(conn, **OLD)
    mode = {"PGOUTBOX_RETENTION__MODE": "archive"}
    would = prune(dsn, "--older-than", "0s", "--dry-run", **mode).stdout
    assert "move 1 delivered message to the archive and delete 1 delivered message" in would
    told = json.loads(prune(dsn, "--older-than", "0s", "--yes", "--json", **mode).stdout)
    assert (told["moved"], told["deleted"], told["left"]) == (1, 1, 0)
    assert conn.execute("SELECT id FROM outbox_archive").fetchall() == [(moved,)]
    assert left(conn) == []


def test_what_something_refers_to_stays_is_told_and_keeps_nothing_else(
    dsn: str, conn: psycopg.Connection
) -> None:
    fill_done(conn, 20)
    numbers = left(conn)
    referred = [numbers[0], numbers[7], numbers[19]]
    conn.execute("CREATE TABLE invoice (id bigint REFERENCES outbox (id))")
    conn.execute("INSERT INTO invoice SELECT unnest(%s::bigint[])", [referred])
    result = prune(dsn, "--yes", "--batch", "8")
    assert (result.exit_code, result.stdout) == (1, "17 delivered messages deleted; 3 left\n")
    assert "3 messages cannot be removed, among them id" in result.stderr
    assert "foreign key" in result.stderr
    assert left(conn) == referred


def test_what_is_very_much_is_not_counted_to_the_end(
    dsn: str, conn: psycopg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pgoutbox.cli.prune_run.MOST", 3)
    fill_done(conn, 5)
    assert "delete at least 3 delivered messages" in prune(dsn, "--dry-run").stdout
    assert prune(dsn, "--yes").stdout == "5 delivered messages deleted\n"


def test_a_role_that_may_not_is_told_what_to_ask_for(dsn: str, conn: psycopg.Connection) -> None:
    number = insert(conn, **OLD)
    with login_role(dsn, "outbox_desk") as person:
        env = {"PGOUTBOX_DSN": person.dsn}
        result = CliRunner().invoke(group, ["prune", "--yes"], env=env, catch_exceptions=False)
    assert result.exit_code == 1
    assert "this role may not prune" in result.stderr
    assert "outbox_dispatcher" in result.stderr
    assert left(conn) == [number]


def test_a_time_that_is_none_is_refused(dsn: str) -> None:
    result = prune(dsn, "--older-than", "soon")
    assert result.exit_code == 2
    assert "times are as in 90s, 30m, 2h, 3d" in result.stderr
