"""Prepared transactions hold the horizon too; servers have them switched off by default."""

from __future__ import annotations

from typing import TYPE_CHECKING

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from pgoutbox.cli.horizon import warnings
from pgoutbox.database.horizon import read
from pgoutbox.database.migrate import apply
from pgoutbox.demo.embedded import EmbeddedServer
from tests.support.horizons import pass_transactions
from tests.support.postgres import FAST

if TYPE_CHECKING:
    from collections.abc import Iterator

GID = "coordinator's 7"


@pytest.fixture
def server() -> Iterator[str]:
    server = EmbeddedServer(settings=FAST | {"max_prepared_transactions": "2"})
    try:
        server.start()
        yield server.dsn
    finally:
        server.remove()


def test_a_prepared_transaction_is_named_whatever_its_database(
    server: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pgoutbox.database.horizon.LATE_SECONDS", 0.0)
    with psycopg.connect(server, autocommit=True) as conn:
        apply(conn, schema="public")
        with psycopg.connect(make_conninfo(server, dbname="template1")) as other:
            other.execute("CREATE TABLE ordinary ()")
            other.execute("PREPARE TRANSACTION 'coordinator''s 7'")
            other.rollback()
        pass_transactions(conn)
        seen = read(conn, schema="public")
        assert seen is not None
        held = seen.holders[0]
        assert (held.kind, held.name, held.database) == ("prepared", GID, "template1")
        assert held.seconds is not None
        assert held.transactions >= 200
        [warning] = warnings(seen)
        assert "ROLLBACK PREPARED 'coordinator''s 7'" in warning.advice
        with psycopg.connect(make_conninfo(server, dbname="template1"), autocommit=True) as other:
            other.execute("ROLLBACK PREPARED 'coordinator''s 7'")
        after = read(conn, schema="public")
        assert after is not None
        assert GID not in {holder.name for holder in after.holders}
