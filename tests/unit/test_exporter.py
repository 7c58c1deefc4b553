from __future__ import annotations

from typing import Any

import psycopg
import pytest
from prometheus_client.exposition import generate_latest
from structlog.testing import capture_logs

from pgoutbox.database.conninfo import DatabaseOptions
from pgoutbox.database.horizon import Holder, Horizon
from pgoutbox.database.statistics import DestinationStatistics, parse
from pgoutbox.telemetry.exporter import Exporter, Look, Source, folded
from tests.support.exporters import Samples, samples

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


def found(horizon: Horizon | None = NOTHING_HELD, **destinations: dict[str, Any]) -> Look:
    named = {name: COUNTS | counts for name, counts in destinations.items()}
    seen = [14.9, 15.1, 0.1]
    states = ["running", "running", "draining"]
    worker = {"owner": "p", "incarnation": "i", "version": "1", "slots": 1, "busy": 0}
    more = {"counters": {}, "destinations": {}, "started_at": ""}
    workers = [
        worker | more | {"state": state, "seen_age": age}
        for state, age in zip(states, seen, strict=True)
    ]
    answer = {"at": 5000.0, "cap": 10, "destinations": named, "workers": workers}
    return Look(parse(answer), horizon)


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
    source._look = Look(None, Horizon(hidden=False, holders=(HOLDER,)), psycopg.Error("too slow"))
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


def test_two_databases_share_a_page_on_which_each_name_is_described_once(
    source: Source, clock: Clock
) -> None:
    other = Source(DatabaseOptions(dsn=str), clock=clock)
    source._look, other._look = found(bank={}), found(mail={})
    text = generate_latest(Exporter([source, other]).registry).decode()
    assert text.count("# TYPE outbox_expired_leases ") == 1
    assert {key for key in samples(text) if key[0] == "outbox_expired_leases"} == {
        ("outbox_expired_leases", "bank"),
        ("outbox_expired_leases", "mail"),
    }


def test_beyond_the_limit_destinations_share_a_name_with_sums_and_the_oldest_age() -> None:
    each = {
        f"d{i}": DestinationStatistics(**COUNTS | {"ready": 2, "oldest_pending_age": float(i)})
        for i in range(5)
    }
    told = folded(each, limit=2)
    assert list(told) == ["d0", "d1", "_other"]
    assert (told["_other"].ready, told["_other"].oldest_pending_age) == (6, 4.0)
    assert list(folded(each, limit=5)) == list(each)
