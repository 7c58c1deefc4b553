"""The demo from end to end, as a person starts it."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pgoutbox.demo import story
from pgoutbox.demo.perform import perform
from pgoutbox.demo.plan import DemoFailed, Plan
from pgoutbox.demo.table import PlainScreen
from pgoutbox.demo.workers import environment

if TYPE_CHECKING:
    import psycopg

PATIENCE = 90
KEYS = {
    "committed",
    "rolled_back",
    "delivered_distinct",
    "duplicates_seen",
    "duplicates_absorbed",
    "dead",
    "lost",
    "reclaimed",
    "lease_lost",
    "handed_back",
    "drain_seconds",
}
SESSIONS = "SELECT FROM pg_stat_activity WHERE datname = current_database() AND pid <> %s"
SCHEMAS = "SELECT FROM pg_namespace WHERE nspname LIKE 'pgoutbox_demo_%%'"


def start(dsn: str, folder: Path, *words: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "pgoutbox", "demo", "--dsn", dsn, *words],
        env=os.environ | {"TMPDIR": str(folder)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=heed_sigint,  # noqa: PLW1509 - no threads that could hold a lock
    )


def heed_sigint() -> None:
    """A test run in the background ignores SIGINT, and would pass that on."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def assert_nothing_is_left(conn: psycopg.Connection, folder: Path) -> None:
    assert conn.execute(SCHEMAS).rowcount == 0
    assert list(folder.iterdir()) == []
    # A session outlives its client by a moment; that a worker lives on would show for long.
    while conn.execute(SESSIONS, [conn.info.backend_pid]).rowcount:
        pass


def test_a_demo_loses_nothing_though_one_worker_is_killed_and_one_is_stopped(
    dsn: str, conn: psycopg.Connection, tmp_path: Path
) -> None:
    with start(dsn, tmp_path, "--seconds", "2", "--json") as demo:
        out, err = demo.communicate(timeout=PATIENCE)
    assert demo.returncode == 0, err
    report: dict[str, Any] = json.loads(out.splitlines()[-1])
    assert report.keys() == KEYS
    assert report["committed"] > 100
    assert report["rolled_back"] > 0
    assert report["dead"] == 1
    assert report["lost"] == 0
    assert report["delivered_distinct"] == report["committed"] - 1
    assert report["reclaimed"] > 0
    assert report["duplicates_seen"] == report["duplicates_absorbed"] > 0
    # It waited for an answer that takes 2.5 s, and for nothing else.
    assert 1 < report["drain_seconds"] < 8
    assert "was killed and left" in err
    assert "was told to stop" in err
    assert_nothing_is_left(conn, tmp_path)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_demo_ends_everything_that_it_started(
    dsn: str, conn: psycopg.Connection, tmp_path: Path, number: signal.Signals
) -> None:
    with start(dsn, tmp_path) as demo:
        assert demo.stderr is not None
        while "The shop sells" not in demo.stderr.readline():
            assert demo.poll() is None
        assert any(tmp_path.iterdir())
        demo.send_signal(number)
        _, err = demo.communicate(timeout=PATIENCE)
    assert demo.returncode == 130, err
    assert err.splitlines()[-1] == "pgoutbox: interrupted"
    assert_nothing_is_left(conn, tmp_path)


def test_a_worker_that_ends_by_itself_ends_the_demo_and_its_log_is_kept(
    dsn: str, conn: psycopg.Connection, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def mistaken(*values: Any, slots: int) -> dict[str, str]:
        return environment(*values, slots=slots) | {"PGOUTBOX_LEASE__RENEW": "never"}

    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(story, "environment", mistaken)
    with pytest.raises(DemoFailed, match=r"exited with 78 by itself; .* logs are in ") as caught:
        perform(Plan(seconds=2), PlainScreen(lambda _: None), dsn=dsn)
    kept = Path(str(caught.value).rpartition(" ")[2])
    assert list(tmp_path.iterdir()) == [kept]
    assert any("PGOUTBOX_LEASE__RENEW" in log.read_text() for log in kept.iterdir())
    shutil.rmtree(kept)
    assert_nothing_is_left(conn, tmp_path)
