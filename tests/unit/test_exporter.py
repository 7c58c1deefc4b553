from __future__ import annotations

from typing import TYPE_CHECKING, Any

import psycopg
import pytest
from prometheus_client.exposition import generate_latest
from structlog.testing import capture_logs

from pgoutbox.database.conninfo import DatabaseOptions
from pgoutbox.database.horizon import Holder, Horizon
from pgoutbox.database.statistics import DestinationStatistics, parse
from pgoutbox.database.upkeep import Upkeep
from pgoutbox.telemetry.exporter import Exporter
from pgoutbox.telemetry.exporter_labels import FORGOTTEN_AFTER
from pgoutbox.telemetry.exporter_source import Look, Source
from tests.support.exporters import Samples, samples

if TYPE_CHECKING:
    from collections.abc import Sequence

COUNTS: dict[str, Any] = dict.fromkeys(DestinationStatistics.__slots__, 0)
HOLDER = Holder(
    kind="slot",
    name="old",
    pid=None,
    role=None,
    database=None,
    application=None,
    state="inactive",
    transactions=70,
    seconds=None,
)
NOTHING_HELD = Horizon(hidden=False, holders=())


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def source(clock: Clock) -> Source:
    return Source(DatabaseOptions(dsn=str), interval=10.0, clock=clock)


def found(
    horizon: Horizon | None = NOTHING_HELD,
    *,
    served: Sequence[str] = (),
    **destinations: dict[str, Any],
) -> Look:
    named = {name: COUNTS | counts for name, counts in destinations.items()}
    seen = [14.9, 15.1, 0.1]
    states = ["running", "running", "draining"]
    worker = {"owner": "p", "incarnation": "i", "version": "1", "slots": 1, "busy": 0}
    more = {"counters": {}, "destinations": {name: {} for name in served}, "started_at": ""}
    workers = [
        worker | more | {"state": state, "seen_age": age}
        for state, age in zip(states, seen, strict=True)
    ]
    answer = {"at": 5000.0, "cap": 10, "destinations": named, "workers": workers}
    return Look(parse(answer), horizon, Upkeep(live=7, dead=2, vacuumed_at=4000.5))


def page(*sources: Source) -> Samples:
    return samples(generate_latest(Exporter(sources).registry).decode())


def test_before_the_first_look_there_is_nothing_but_that_it_is_not_up(source: Source) -> None:
    assert {name for name, *_ in page(source)} == {"outbox_collector_up", "outbox_build_info"}
    assert page(source)["outbox_collector_up",] == 0


def test_counts_and_ages_are_told_by_destination(source: Source) -> None:
    counts = {"ready": 4, "waiting": 3, "scheduled": 2, "processing": 1, "expired": 1, "dead": 6}
    ages = {"oldest_pending_age": 90.0, "oldest_ready_age": 60.0, "oldest_blocked_age": 30.0}
    source._look = found(bank=counts | ages | {"blocked_lanes": 5})
    told = page(source)
    pending = {key[2]: value for key, value in told.items() if key[0] == "outbox_pending_messages"}
    assert pending == {"ready": 4, "waiting": 3, "scheduled": 2, "leased": 1}
    assert told["outbox_expired_leases", "bank"] == 1
    assert told["outbox_dead_letter_messages", "bank"] == 6
    assert told["outbox_blocked_lanes", "bank"] == 5
    assert told["outbox_oldest_pending_age_seconds", "bank"] == 90
    assert told["outbox_oldest_pending_timestamp_seconds", "bank"] == 4910
    assert told["outbox_oldest_ready_age_seconds", "bank"] == 60
    assert told["outbox_oldest_blocked_age_seconds", "bank"] == 30
    assert told["outbox_collector_up",] == 1


def test_a_time_is_told_only_of_what_is_owed(source: Source) -> None:
    source._look = found(bank={"dead": 1})
    told = page(source)
    assert told["outbox_oldest_pending_age_seconds", "bank"] == 0
    assert ("outbox_oldest_pending_timestamp_seconds", "bank") not in told


def test_workers_are_counted_by_state_and_those_that_were_not_seen_are_silent(
    source: Source,
) -> None:
    source._look = found()
    told = page(source)
    states = {key[1]: value for key, value in told.items() if key[0] == "outbox_workers"}
    assert states == {"running": 1, "draining": 1, "silent": 1}


@pytest.mark.parametrize(
    ("horizon", "transactions", "seconds"),
    [
        (NOTHING_HELD, 0, 0),
        (Horizon(hidden=False, holders=(HOLDER,)), 70, None),
        (None, None, None),
    ],
)
def test_an_age_that_is_not_known_is_left_out_and_never_zero(
    source: Source, horizon: Horizon | None, transactions: int | None, seconds: float | None
) -> None:
    source._look = found(horizon)
    told = page(source)
    assert told.get(("outbox_xmin_age_transactions",)) == transactions
    assert told.get(("outbox_xmin_age_seconds",)) == seconds


def test_a_horizon_without_statistics_is_shown_and_not_up(source: Source, clock: Clock) -> None:
    held = Horizon(hidden=False, holders=(HOLDER,))
    source._look = Look(None, held, failure=psycopg.Error("too slow"))
    told = page(source)
    assert told["outbox_xmin_age_transactions",] == 70
    assert told["outbox_collector_up",] == 0
    assert not [key for key in told if key[0] == "outbox_workers"]
    clock.now += 28.1
    assert ("outbox_xmin_age_transactions",) not in page(source)


def test_what_was_found_vanishes_when_nobody_has_looked_for_too_long(
    source: Source, clock: Clock
) -> None:
    source._look = found(bank={"ready": 4})
    clock.now += 28.0
    assert ("outbox_expired_leases", "bank") in page(source)
    clock.now += 0.1
    told = page(source)
    assert told["outbox_collector_up",] == 0
    assert ("outbox_expired_leases", "bank") not in told


async def test_a_failure_is_told_once_and_again_only_when_it_is_another() -> None:
    said = ["the first", "the first", "the second"]

    def unreadable() -> str:
        raise OSError(said.pop(0))

    with capture_logs() as lines:
        source = Source(DatabaseOptions(dsn=unreadable))
        for _ in range(3):
            await source.refresh()
    assert [line["error"] for line in lines] == ["the first", "the second"]
    assert page(source)["outbox_collector_up",] == 0


def test_row_versions_are_told_and_the_last_vacuum_only_where_there_was_one(
    source: Source,
) -> None:
    source._look = found()
    told = page(source)
    assert told["outbox_table_live_tuples",] == 7
    assert told["outbox_table_dead_tuples",] == 2
    assert told["outbox_table_last_vacuum_timestamp_seconds",] == 4000.5
    source._look = source._look._replace(upkeep=Upkeep(live=7, dead=2, vacuumed_at=None))
    assert ("outbox_table_last_vacuum_timestamp_seconds",) not in page(source)


def test_a_destination_that_drained_is_shown_at_0_for_an_hour(source: Source, clock: Clock) -> None:
    source._look = found(bank={"ready": 4, "dead": 1, "oldest_pending_age": 9.0})
    assert page(source)["outbox_oldest_pending_age_seconds", "bank"] == 9
    source._look = found()
    told = page(source)
    assert {value for key, value in told.items() if "bank" in key} == {0.0}
    assert ("outbox_pending_messages", "bank", "ready") in told
    assert ("outbox_oldest_pending_timestamp_seconds", "bank") not in told
    source._looked_at = clock.now = 1000.0 + FORGOTTEN_AFTER
    assert ("outbox_dead_letter_messages", "bank") in page(source)
    source._looked_at = clock.now = clock.now + 0.1
    assert ("outbox_dead_letter_messages", "bank") not in page(source)


def test_a_destination_that_a_worker_serves_is_shown_at_0_before_its_first_message(
    source: Source,
) -> None:
    source._look = found(served=["bank"])
    told = page(source)
    assert told["outbox_dead_letter_messages", "bank"] == 0
    assert told["outbox_pending_messages", "bank", "ready"] == 0


def test_nothing_is_shown_at_0_while_nobody_knows(source: Source) -> None:
    source._look = found(bank={"ready": 4})
    page(source)
    source._look = None
    assert not [key for key in page(source) if "bank" in key]


def test_with_names_each_sample_says_which_database_it_is_about(clock: Clock) -> None:
    options = DatabaseOptions(dsn=str)
    shop, stock = (Source(options, name=name, clock=clock) for name in ("shop", "stock"))
    shop._look, stock._look = found(bank={"ready": 4}), None
    text = generate_latest(Exporter([shop, stock]).registry).decode()
    assert text.count("# TYPE outbox_collector_up ") == 1
    assert 'outbox_collector_up{database="shop"} 1.0' in text
    assert 'outbox_collector_up{database="stock"} 0.0' in text
    assert 'outbox_expired_leases{database="shop",destination="bank"} 0.0' in text
    assert 'outbox_workers{database="shop",state="running"} 1.0' in text
    assert text.count('database="stock"') == 1
