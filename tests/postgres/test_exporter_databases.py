"""One exporter for several databases."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.support.exporters import ExporterProcess, Samples
from tests.support.observing import eventually
from tests.support.outbox_rows import insert
from tests.support.proxy import Proxy

if TYPE_CHECKING:
    import psycopg

NOWHERE = "host=127.0.0.1 port=1"


def of(told: Samples, name: str) -> dict[str, float]:
    """What is told of one database, without its other labels."""
    return {key[0]: value for key, value in told.items() if name in key[1:]}


def up(told: Samples) -> dict[str, float]:
    return {key[1]: value for key, value in told.items() if key[0] == "outbox_collector_up"}


def test_each_database_is_told_under_its_name_and_a_broken_one_hides_none(
    dsn: str, empty_dsn: str, conn: psycopg.Connection
) -> None:
    insert(conn, destination="bank")
    with (
        Proxy(dsn) as proxy,
        ExporterProcess(
            NOWHERE,
            DATABASES__SHOP__DSN=dsn,
            DATABASES__DEPOT__DSN=proxy.dsn,
            DATABASES__EMPTY__DSN=empty_dsn,
            DATABASES__GONE__DSN=NOWHERE,
        ).started() as exporter,
    ):
        started = exporter.wait_for("exporter started")
        assert started["databases"] == ["depot", "empty", "gone", "shop"]

        working = {"shop": 1.0, "depot": 1.0, "empty": 0.0, "gone": 0.0}
        eventually(lambda: up(exporter.scrape()) == working, "a look at each")
        told = exporter.scrape()
        assert told["outbox_pending_messages", "shop", "bank", "ready"] == 1
        assert told["outbox_pending_messages", "depot", "bank", "ready"] == 1
        for name in ("empty", "gone"):
            assert of(told, name).keys() <= {
                "outbox_collector_up",
                "outbox_collector_duration_seconds",
            }
        proxy.freeze()
        eventually(lambda: up(exporter.scrape()) == working | {"depot": 0.0}, "a look that fails")
        insert(conn, destination="bank")

        def second() -> bool:
            return exporter.scrape()["outbox_pending_messages", "shop", "bank", "ready"] == 2

        eventually(second, "another look at the one that works")
        failed = {line["database"] for line in exporter.events("database failed")}
        assert failed == {"depot", "empty", "gone"}
        assert exporter.stop().code == 0
