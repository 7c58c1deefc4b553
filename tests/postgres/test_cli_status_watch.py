"""``pgoutbox status --watch``: again and again, also while the database is away."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from contextlib import contextmanager
from typing import IO, TYPE_CHECKING

from psycopg.types.json import Jsonb

from tests.support.outbox_rows import insert

if TYPE_CHECKING:
    from collections.abc import Iterator

    import psycopg


@contextmanager
def watching(dsn: str, *words: str) -> Iterator[subprocess.Popen[str]]:
    """``pgoutbox status --watch``, at a pipe."""
    command = [sys.executable, "-m", "pgoutbox", "status", "--watch", "0.1", *words]
    with subprocess.Popen(
        command,
        env=os.environ | {"PGOUTBOX_DSN": dsn},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def read(stream: IO[str] | None) -> str:
    assert stream is not None
    return stream.readline()


def test_every_look_is_a_line_of_json_with_rates_until_it_is_interrupted(
    dsn: str, conn: psycopg.Connection
) -> None:
    conn.execute(
        "INSERT INTO outbox_workers (incarnation, owner, version, state, slots, busy, counters)"
        " VALUES (gen_random_uuid(), 'pod-1', '1', 'running', 10, 0, %s)",
        [Jsonb({"published": 7})],
    )
    with watching(dsn, "--json") as process:
        first = json.loads(read(process.stdout))
        assert (first["destinations"], first["rates"]) == ({}, {})
        insert(conn)
        conn.execute("UPDATE outbox_workers SET counters = %s", [Jsonb({"published": 1007})])
        later = next(
            found
            for line in iter(process.stdout or [])
            if (found := json.loads(line))["rates"]
            and found["rates"]["published"]
            and found["destinations"]
        )
        assert later["destinations"]["default"]["ready"] == 1
        assert later["rates"]["published"] > 10
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=10)
        assert (process.returncode, err) == (0, "")


def test_a_database_that_goes_away_is_said_and_comes_back(
    dsn: str, conn: psycopg.Connection
) -> None:
    with watching(dsn, "--json") as process:
        assert read(process.stdout)
        conn.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            " WHERE application_name = 'pgoutbox' AND datname = current_database()"
        )
        assert "the database does not answer, trying again" in read(process.stderr)
        at = json.loads(read(process.stdout))["at"]
        assert json.loads(read(process.stdout))["at"] > at


def test_a_database_that_was_never_there_is_an_error_at_once(dsn: str) -> None:
    with watching(dsn + " dbname=nowhere") as process:
        _, err = process.communicate(timeout=10)
    assert process.returncode == 1
    assert "nowhere" in err


def test_people_see_the_tables_with_the_time_above_them(dsn: str, conn: psycopg.Connection) -> None:
    insert(conn, destination="mail")
    with watching(dsn) as process:
        assert read(process.stdout).rstrip().endswith("Z")
        shown = [read(process.stdout) for _ in range(4)]
    assert any(line.startswith("mail") for line in shown), shown
