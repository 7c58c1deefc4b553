from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import psycopg
import pytest

from pgoutbox.database import migrate
from pgoutbox.database.migrations import Migration, available
from tests.support.waiting import until_waiting

if TYPE_CHECKING:
    from collections.abc import Callable


class Second(threading.Thread):
    """A migrate in a thread of its own; the thread ends with its answer or its error."""

    def __init__(self, dsn: str, *, options: str = "") -> None:
        super().__init__(daemon=True)
        self.conn = psycopg.connect(dsn, options=options)
        self.done: list[Migration] | None = None
        self.start()

    def run(self) -> None:
        with self.conn:
            self.done = migrate.apply(self.conn, schema="app")


@pytest.mark.parametrize("options", ["", "-c default_transaction_isolation=serializable"])
def test_a_second_migrate_waits_for_the_first_and_then_finds_nothing_to_do(
    empty_dsn: str, monkeypatch: pytest.MonkeyPatch, options: str
) -> None:
    run_all: Callable[..., list[Migration]] = migrate._run_all
    seconds: list[Second] = []

    def while_the_second_waits(conn: psycopg.Connection, todo: list[Migration]) -> list[Migration]:
        if todo:
            seconds.append(Second(empty_dsn, options=options))
            until_waiting(conn, seconds[0].conn.info.backend_pid, on="advisory")
        return run_all(conn, todo)

    monkeypatch.setattr(migrate, "_run_all", while_the_second_waits)
    with psycopg.connect(empty_dsn) as first:
        assert migrate.apply(first, schema="app") == available()
    seconds[0].join(timeout=30)
    assert seconds[0].done == []
