from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any

import pytest
import structlog
from structlog.testing import LogCapture

from pgoutbox import events
from pgoutbox.events import Settled
from pgoutbox.outcome import (
    Bury,
    Finish,
    Interrupted,
    Outcome,
    PermanentFailure,
    Published,
    Release,
    Retry,
    RetryableFailure,
    Transition,
    Unstarted,
)
from pgoutbox.telemetry.logs import Logs
from pgoutbox.testing import make_message

if TYPE_CHECKING:
    from collections.abc import Callable

    from structlog.typing import EventDict


class Clock:
    now = 50.0

    def __call__(self) -> float:
        return self.now


class Written:
    """The observer, and what it wrote."""

    def __init__(self, level: int = logging.INFO) -> None:
        capture = LogCapture()
        bound = structlog.make_filtering_bound_logger(level)
        logger = structlog.wrap_logger(None, processors=[capture], wrapper_class=bound)
        self.clock = Clock()
        self.later: list[tuple[float, Callable[[], None]]] = []
        self.logs = Logs(logger=logger, clock=self.clock, later=self._call_later)
        self._capture = capture

    def _call_later(self, seconds: float, call: Callable[[], None]) -> None:
        self.later.append((self.clock.now + seconds, call))

    def at(self, seconds: float) -> list[dict[str, Any]]:
        """The lines that came by themselves until then."""
        self._capture.entries.clear()
        while due := [each for each in self.later if each[0] <= seconds]:
            first = min(due, key=lambda each: each[0])
            self.later.remove(first)
            self.clock.now, call = first
            call()
        self.clock.now = seconds
        return [dict(entry) for entry in self._capture.entries]

    def after(self, *happened: events.Event) -> list[dict[str, Any]]:
        """The lines that these events brought."""
        self._capture.entries.clear()
        for event in happened:
            self.logs.on_event(event)
        return [dict(entry) for entry in self._capture.entries]


@pytest.fixture
def written() -> Written:
    return Written()


def settled(outcome: Outcome, transition: Transition, **fields: Any) -> Settled:
    return Settled(make_message(**fields), outcome, transition, 0.0, 0.01)


def finalized(*batch: Settled, **others: list[Settled]) -> events.Finalized:
    names = ("lost", "already_written", "unknown")
    rest: dict[str, list[Settled]] = {name: others.get(name, []) for name in names}
    refused = [
        events.Refused(each, "no\nway (SQLSTATE P0001)") for each in others.get("refused", [])
    ]
    return events.Finalized(list(batch), **rest, refused=refused, seconds=0.004)


FINE = settled(Published(), Finish())
FAILED = settled(RetryableFailure("answered 503"), Retry(1.0, "answered 503"))


def test_nothing_is_written_while_all_goes_well(written: Written) -> None:
    assert not written.after(
        events.Claimed([make_message()] * 500, reclaimed=0, seconds=0.001),
        finalized(*[FINE] * 500),
        events.Renewed(500, 0.001),
        events.Reaped({}),
        events.Pruned(1000),
    )


def test_a_burst_of_deliveries_is_one_line_a_second_later(written: Written) -> None:
    audit = settled(Published(), Finish(), destination="audit")
    assert not written.after(finalized(*[FINE] * 500), finalized(already_written=[FINE, audit]))
    assert written.at(51.0) == [
        {
            "log_level": "info",
            "event": "delivered",
            "count": 502,
            "destinations": {"audit": 1, "default": 501},
        }
    ]


def test_deliveries_that_go_on_are_told_every_ten_seconds_and_none_is_left_out(
    written: Written,
) -> None:
    written.after(finalized(FINE))
    assert [line["count"] for line in written.at(51.0)] == [1]
    for second in range(52, 61):
        written.after(finalized(FINE))
        assert not written.at(float(second))
    assert [line["count"] for line in written.at(61.0)] == [9]
    assert not written.at(1000.0)


def test_what_was_not_delivered_is_not_told_as_delivered(written: Written) -> None:
    written.after(finalized(FAILED, lost=[FINE], unknown=[FINE], refused=[FINE]))
    assert not written.at(1000.0)


def test_the_end_tells_what_was_delivered_and_how_many_in_all(written: Written) -> None:
    written.after(finalized(FINE))
    written.at(51.0)
    delivered, ended = written.after(
        finalized(FINE, FINE), events.DrainEnded(2, 0, 0, 0, seconds=0.1)
    )
    assert (delivered["event"], delivered["count"]) == ("delivered", 2)
    assert (ended["event"], ended["published"]) == ("drain ended", 3)
    assert not written.at(1000.0)


def test_a_drain_that_abandoned_messages_ends_with_a_warning(written: Written) -> None:
    (line,) = written.after(events.DrainEnded(2, 1, 0, 3, seconds=1.5))
    assert (line["log_level"], line["abandoned"]) == ("warning", 3)


async def test_on_an_event_loop_the_line_comes_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pgoutbox.telemetry.deliveries.SOON_SECONDS", 0.0)
    written = asyncio.Event()

    def note(_logger: object, _method: str, line: EventDict) -> str:
        written.set()
        return str(line["event"])

    Logs(logger=structlog.wrap_logger(structlog.ReturnLogger(), processors=[note])).on_event(
        finalized(FINE)
    )
    await asyncio.wait_for(written.wait(), 10)


def test_everything_may_be_seen_at_debug() -> None:
    lines = Written(logging.DEBUG).after(
        events.Claimed([make_message()], reclaimed=0, seconds=0.001),
        finalized(FINE),
        events.Renewed(1, 0.001),
        events.Pruned(1000),
    )
    assert [line["event"] for line in lines] == [
        "claimed",
        "finalized",
        "leases renewed",
        "finished messages pruned",
    ]
    assert {line["log_level"] for line in lines} == {"debug"}


def test_notifications_that_were_insisted_on_and_do_not_arrive_are_an_error(
    written: Written,
) -> None:
    lines = written.after(
        events.WakeupModeChanged("poll", "none arrived", insisted=True),
        events.WakeupModeChanged("notify", "one arrived", insisted=True),
    )
    assert [line["log_level"] for line in lines] == ["error", "info"]


def test_the_life_of_a_worker_is_told_at_info(written: Written) -> None:
    again = make_message(id=7, reclaims=1)
    lines = written.after(
        events.WorkerStarted("pod-1", "7f", ("orders",)),
        events.WakeupModeChanged("poll", "notifications do not arrive"),
        events.Claimed([again, make_message(), make_message()], reclaimed=1, seconds=0.001),
        events.DatabaseRecovered(12.34567),
        events.DrainStarted("SIGTERM", in_flight=3),
        events.DrainEnded(2, 1, 0, 0, seconds=1.5),
    )
    assert {line.pop("log_level") for line in lines} == {"info"}
    assert lines == [
        {
            "event": "worker started",
            "owner": "pod-1",
            "incarnation": "7f",
            "destinations": ["orders"],
        },
        {"event": "wakeup mode", "mode": "poll", "reason": "notifications do not arrive"},
        {
            "event": "reclaimed",
            "count": 1,
            "claimed": 3,
            "message_ids": [str(again.message_id)],
            "outbox_ids": [7],
        },
        {"event": "database recovered", "seconds": 12.3457},
        {"event": "drain started", "reason": "SIGTERM", "in_flight": 3},
        {
            "event": "drain ended",
            "published": 0,
            "finished": 2,
            "handed_back": 1,
            "interrupted": 0,
            "abandoned": 0,
            "seconds": 1.5,
        },
    ]


def test_the_failures_of_a_batch_are_one_line_for_each_destination_and_outcome(
    written: Written,
) -> None:
    other = settled(Interrupted(), Retry(1.0, "interrupted"), destination="audit")
    lines = written.after(finalized(*[FAILED] * 300, other, FINE))
    assert [
        (line["log_level"], line["event"], line["count"], line["destination"], line["outcome"])
        for line in lines
    ] == [
        ("warning", "publish failed", 300, "default", "retryable"),
        ("warning", "publish failed", 1, "audit", "cancelled"),
    ]
    assert lines[0]["error"] == "answered 503"


def test_failures_that_go_on_are_told_every_ten_seconds_with_their_number(
    written: Written,
) -> None:
    assert [line["count"] for line in written.after(finalized(FAILED))] == [1]
    written.clock.now += 9.9
    assert not written.after(finalized(FAILED, FAILED), finalized(FAILED))
    written.clock.now += 0.1
    assert [line["count"] for line in written.after(finalized(FAILED))] == [4]
    written.clock.now += 60
    assert [line["count"] for line in written.after(finalized(FAILED))] == [1]


def test_failures_that_were_held_back_are_told_by_themselves_after_ten_seconds(
    written: Written,
) -> None:
    written.after(finalized(FAILED))
    written.clock.now += 3
    later = settled(RetryableFailure("x"), Retry(1.0, "x"), id=7)
    assert not written.after(finalized(FAILED), finalized(later))
    (line,) = written.at(60.0)
    assert (line["event"], line["count"]) == ("publish failed", 2)
    assert (line["outbox_ids"], line["error"]) == ([7], "x")
    assert not written.at(1000.0)


def test_one_destination_that_fails_does_not_silence_another(written: Written) -> None:
    written.after(finalized(FAILED))
    other = settled(RetryableFailure("x"), Retry(1.0, "x"), destination="audit")
    assert len(written.after(finalized(FAILED, other))) == 1


def test_failures_that_were_held_back_are_told_before_the_end(written: Written) -> None:
    written.after(finalized(FAILED))
    lines = written.after(finalized(FAILED), events.DrainEnded(0, 0, 0, 0, seconds=0.1))
    assert [line["event"] for line in lines] == ["publish failed", "drain ended"]


def test_what_never_started_is_no_failure(written: Written) -> None:
    assert not written.after(finalized(settled(Unstarted(), Release())))


def test_dead_letters_of_a_batch_are_one_error_with_examples(written: Written) -> None:
    dead = [
        settled(PermanentFailure("answered 410"), Bury("answered 410"), destination=name)
        for name in ["orders"] * 6 + ["audit"]
    ]
    (line,) = written.after(finalized(*dead, FINE))
    assert line == {
        "log_level": "error",
        "event": "dead letters",
        "destinations": {"orders": 6, "audit": 1},
        "error": "answered 410",
        "count": 7,
        "message_ids": [str(each.message.message_id) for each in dead[:5]],
        "outbox_ids": [each.message.id for each in dead[:5]],
    }


def test_what_the_reaper_buried_is_an_error(written: Written) -> None:
    (line,) = written.after(events.Reaped({"orders": 2}))
    assert (line["log_level"], line["event"], line["count"]) == ("error", "dead letters", 2)


def test_lost_and_unwritten_rows_are_named(written: Written) -> None:
    lines = written.after(
        events.LeaseLost([make_message()]),
        events.LeaseUnconfirmed([make_message()]),
        finalized(lost=[FINE], unknown=[FINE], refused=[FINE]),
    )
    assert [(line["log_level"], line["event"]) for line in lines] == [
        ("warning", "lease lost"),
        ("warning", "lease unconfirmed"),
        ("warning", "lease lost"),
        ("error", "finalize refused by the database"),
        ("warning", "rows gone before finalize was answered"),
    ]
    assert all(line["count"] == 1 and len(line["message_ids"]) == 1 for line in lines)
    assert lines[3]["error"] == "no\N{REPLACEMENT CHARACTER}way (SQLSTATE P0001)"


def test_an_outage_of_the_database_is_told_every_ten_seconds(written: Written) -> None:
    failed = events.DatabaseFailed("claim", "connection refused\n  Is the server running?")
    (line,) = written.after(failed, failed)
    assert line["error"] == "connection refused\N{REPLACEMENT CHARACTER}  Is the server running?"
    assert len(written.after(events.DatabaseFailed("finalize", "connection refused"))) == 1


def test_a_bug_in_a_publisher_comes_with_its_exception(written: Written) -> None:
    bug = KeyError("x")
    (line,) = written.after(events.PublisherFailed(make_message(), bug))
    assert (line["log_level"], line["exc_info"]) == ("error", bug)
    (line,) = written.after(events.DestinationStopped("orders", "its publisher has a bug"))
    assert (line["log_level"], line["destination"]) == ("error", "orders")


def test_no_payload_key_or_header_is_ever_written() -> None:
    secret: dict[str, Any] = {
        "body": b"hunter2",
        "aggregate_id": "hunter2",
        "ordering_key": "hunter2",
        "headers_json": '{"token": "hunter2"}',
    }
    message = make_message(**secret)
    each = [
        settled(Published(), Finish(), **secret),
        settled(RetryableFailure("x"), Retry(1.0, "x"), **secret),
        settled(PermanentFailure("x"), Bury("x"), **secret),
    ]
    lines = Written(logging.DEBUG).after(
        events.Claimed([message], reclaimed=1, seconds=0.1),
        finalized(*each, lost=each, unknown=each, refused=each, already_written=each),
        events.LeaseLost([message]),
        events.LeaseUnconfirmed([message]),
        events.PublisherFailed(message, KeyError("x")),
    )
    assert len(lines) > 8
    assert "hunter2" not in repr(lines)


def test_an_error_takes_one_line_of_bounded_length(written: Written) -> None:
    error = "\x1b[31mred\r\n" + "x" * 5_000_000
    (line,) = written.after(finalized(settled(RetryableFailure(error), Retry(1.0, error))))
    assert line["error"].isprintable()
    assert len(line["error"]) == 301
