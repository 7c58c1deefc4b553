"""Lines about messages: whom they name, how loud they are, and how many there may be."""

from __future__ import annotations

import pytest

from pgoutbox import events
from pgoutbox.outcome import Bury, Finish, PermanentFailure, Published, Retry, RetryableFailure
from pgoutbox.testing import make_message
from tests.unit.test_logs import Written, finalized, settled

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
SPAN = "00f067aa0ba902b7"
HEADERS = f'{{"tenant": "hunter2", "traceparent": "00-{TRACE}-{SPAN}-00"}}'
TRACED = make_message(id=7, reclaims=1, headers_json=HEADERS)
FAILED = settled(RetryableFailure("answered 503"), Retry(1.0, "answered 503"))
DEAD = settled(PermanentFailure("answered 410"), Bury("answered 410"))
FINE = settled(Published(), Finish())


@pytest.fixture
def written() -> Written:
    return Written()


@pytest.mark.parametrize(
    "event",
    [
        finalized(FAILED._replace(message=TRACED)),
        finalized(DEAD._replace(message=TRACED)),
        finalized(lost=[FINE._replace(message=TRACED)]),
        finalized(unknown=[FINE._replace(message=TRACED)]),
        finalized(refused=[FINE._replace(message=TRACED)]),
        events.Claimed([make_message(), TRACED], reclaimed=1, seconds=0.1),
        events.LeaseLost([TRACED]),
        events.LeaseUnconfirmed([TRACED]),
        events.PublisherFailed(TRACED, KeyError("x")),
    ],
)
def test_each_line_about_a_message_names_it_and_the_trace_that_it_was_stored_in(
    written: Written, event: events.Event
) -> None:
    (line,) = written.after(event)
    assert line["message_ids"] == [str(TRACED.message_id)]
    assert line["outbox_ids"] == [7]
    assert (line["trace_id"], line["span_id"]) == (TRACE, SPAN)
    assert "hunter2" not in repr(line)


def test_a_line_about_several_messages_has_the_trace_of_the_first(written: Written) -> None:
    (line,) = written.after(events.LeaseLost([TRACED, make_message(id=8)]))
    assert (line["trace_id"], line["outbox_ids"]) == (TRACE, [7, 8])
    written = Written()
    (line,) = written.after(events.LeaseLost([make_message(id=8), TRACED]))
    assert "trace_id" not in line


def test_a_message_that_fails_once_and_is_delivered_then_is_a_warning_and_no_error(
    written: Written,
) -> None:
    lines = written.after(
        finalized(FAILED), finalized(FINE), events.DrainEnded(1, 0, 0, 0, seconds=0.1)
    )
    assert [(line["log_level"], line["event"]) for line in lines] == [
        ("warning", "publish failed"),
        ("info", "delivered"),
        ("info", "drain ended"),
    ]


def test_a_few_dead_letters_are_a_line_each_and_many_are_one_every_ten_seconds(
    written: Written,
) -> None:
    other = DEAD._replace(message=make_message(id=9, destination="audit"))
    few = written.after(*[finalized(DEAD)] * 10)
    assert [line["count"] for line in few] == [1] * 10
    assert not written.after(*[finalized(DEAD)] * 400, finalized(other, DEAD))
    (line,) = written.at(60.0)
    assert (line["log_level"], line["count"]) == ("error", 402)
    assert line["destinations"] == {"default": 401, "audit": 1}
    assert line["outbox_ids"] == [9, DEAD.message.id]
    assert not written.after(finalized(DEAD))
    assert [line["count"] for line in written.at(70.0)] == [1]
    assert not written.at(80.0)
    assert [line["count"] for line in written.after(*[finalized(DEAD)] * 3)] == [1, 1, 1]


def test_a_bug_that_every_message_meets_is_a_few_lines_and_another_is_told(
    written: Written,
) -> None:
    bug, other = KeyError("x"), TypeError("y")
    met = [events.PublisherFailed(make_message(id=number), bug) for number in range(500)]
    assert len(written.after(*met)) == 1
    (line,) = written.after(events.PublisherFailed(TRACED, other))
    assert line["exc_info"] is other
    (line,) = written.at(60.0)
    assert (line["count"], line["exc_info"], line["outbox_ids"]) == (499, bug, [499])


@pytest.mark.parametrize("name", ["lost", "unknown", "refused"])
def test_batches_that_all_meet_the_same_do_not_flood_the_log(written: Written, name: str) -> None:
    lines = written.after(*[finalized(**{name: [FINE, FINE]})] * 100)
    assert [line["count"] for line in lines] == [2]
    assert [line["count"] for line in written.at(60.0)] == [198]


def test_a_timer_that_rings_after_the_line_was_written_writes_no_other_one_early(
    written: Written,
) -> None:
    assert len(written.after(finalized(FAILED), finalized(FAILED))) == 1
    written.clock.now += 10.0
    assert len(written.after(finalized(FAILED))) == 1
    assert not written.after(finalized(FAILED))
    assert not written.at(60.0)
    assert [line["count"] for line in written.at(70.0)] == [1]
