"""A worker can be told to stop before it has begun, and waits for what it cannot do without."""

from __future__ import annotations

from typing import TYPE_CHECKING

import psycopg
import pytest

from pgoutbox.database.migrate import apply
from tests.support.observing import count, eventually
from tests.support.outbox_rows import fill
from tests.support.proxy import Proxy
from tests.support.workers import WorkerProcess

if TYPE_CHECKING:
    from pathlib import Path

STALLED_IMPORT = """\
import json, sys, time

class Stall:
    def find_spec(self, name, path=None, target=None):
        if name == {module!r}:
            sys.stderr.write(json.dumps({{"event": "importing"}}) + "\\n")
            sys.stderr.flush()
            time.sleep(60)

sys.meta_path.insert(0, Stall())
"""


@pytest.mark.parametrize("module", ["click", "psycopg", "uvloop"])
def test_a_signal_during_the_imports_ends_the_worker_at_once_and_without_an_error(
    dsn: str, tmp_path: Path, module: str
) -> None:
    (tmp_path / "sitecustomize.py").write_text(STALLED_IMPORT.format(module=module))
    with WorkerProcess(dsn, "noop://").with_path(tmp_path).start() as worker:
        worker.wait_for("importing")
        code, seconds = worker.stop()

    assert code == 0
    assert seconds < 1.0
    assert [line["event"] for line in worker.lines] == ["importing"]


def test_a_signal_ends_a_worker_that_has_not_reached_its_database_yet(dsn: str) -> None:
    with Proxy(dsn) as gone, Proxy(dsn) as silent:
        gone.refuse()
        silent.freeze()
        one, other = WorkerProcess(gone.dsn, "noop://"), WorkerProcess(silent.dsn, "noop://")
        with one.start(), other.start():
            one.wait_for("database failed", doing="connect")
            eventually(lambda: silent.connections > 0, "a connection that nobody answers")
            assert (one.get("/livez"), one.get("/readyz")) == (200, 503)
            assert (other.get("/livez"), other.get("/readyz")) == (200, 503)
            for worker in (one, other):
                code, seconds = worker.stop()
                assert code == 0
                assert seconds < 2.0
                assert worker.events("worker started") == []


def test_a_signal_ends_a_worker_whose_publisher_does_not_open(dsn: str, publishers: Path) -> None:
    with WorkerProcess(dsn, "stubborn://opening").with_path(publishers).start() as worker:
        worker.wait_for("opening")
        assert (worker.get("/livez"), worker.get("/readyz")) == (200, 503)
        code, seconds = worker.stop()

    assert code == 0
    assert seconds < 2.0


def test_a_connection_that_hangs_during_the_start_is_given_up_and_tried_again(dsn: str) -> None:
    with Proxy(dsn) as proxy, WorkerProcess(proxy.dsn, "noop://") as worker:
        asked = proxy.freeze_at(b"pgoutbox.probe")
        worker.start()
        assert asked.wait(20)
        # That one stays silent for ever; others would be answered.
        worker.wait_for("worker started", 10.0)


def test_a_missing_schema_is_waited_for_and_the_log_says_what_to_do(empty_dsn: str) -> None:
    with WorkerProcess(empty_dsn, "noop://").start() as worker:
        failed = worker.wait_for("database failed", doing="check the schema")
        assert "pgoutbox migrate" in failed["error"]
        assert (worker.get("/livez"), worker.get("/readyz")) == (200, 503)
        with psycopg.connect(empty_dsn, autocommit=True) as conn:
            apply(conn, schema="public")
            fill(conn, 3)
            eventually(lambda: count(conn, "status = 'done'") == 3, "three deliveries", 5.0)
        assert worker.get("/readyz") == 200
