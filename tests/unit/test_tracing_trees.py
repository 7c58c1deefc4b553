"""Which spans there are, in which trace, below which other one, and with links to which."""

from __future__ import annotations

import json
from textwrap import dedent

import pytest

from pgoutbox.events import (
    DrainEnded,
    LeaseLost,
    LeaseUnconfirmed,
    PublisherFailed,
    Refused,
    Renewed,
)
from pgoutbox.outcome import (
    Bury,
    Deferred,
    DeferUntil,
    Interrupted,
    PermanentFailure,
    Release,
    Retry,
    RetryableFailure,
    Unstarted,
)
from tests.support.otlp import tree
from tests.support.traced import LATER, Traced, created, settled, untraced


def text(expected: str) -> str:
    return dedent(expected).strip()


def test_a_message_alone_is_claimed_published_and_acknowledged_in_its_own_trace() -> None:
    traced = Traced()
    traced.deliver(created(1))
    assert str(traced) == text("""
        *1
          claim orders (1)
          publish orders #1 ok -> claim
          ack orders (1)
    """)


def test_messages_of_several_traces_share_a_claim_that_is_linked_with_all_of_them() -> None:
    traced = Traced()
    traced.deliver(created(1), created(2))
    assert str(traced) == text("""
        claim orders (2) -> *1 *2
        *1
          publish orders #1 ok -> claim
        *2
          publish orders #1 ok -> claim
        ack orders (2) -> *1 *2
    """)


def test_what_one_request_enqueued_stays_in_its_trace() -> None:
    traced = Traced()
    traced.deliver(created(1, 1), created(1, 2))
    assert str(traced) == text("""
        *1
          claim orders (2) -> *1.2
          publish orders #1 ok -> claim
          ack orders (2) -> *1.2
        *1.2
          publish orders #1 ok -> claim
    """)


def test_below_their_claim_publishes_are_linked_with_where_they_were_created() -> None:
    traced = Traced(parent="batch")
    traced.deliver(created(1), created(2))
    assert str(traced) == text("""
        claim orders (2) -> *1 *2
          publish orders #1 ok -> *1
          publish orders #1 ok -> *2
          ack orders (2) -> *1 *2
    """)


def test_what_several_claims_brought_is_acknowledged_in_a_trace_of_its_own() -> None:
    traced = Traced(parent="batch")
    first, second = created(1), created(2)
    traced.claim(first)
    traced.claim(second)
    traced.finalize(first, second)
    assert str(traced) == text("""
        claim orders (1) -> *1
          publish orders #1 ok -> *1
        claim orders (1) -> *2
          publish orders #1 ok -> *2
        ack orders (2) -> *1 *2
    """)


def test_messages_that_are_not_traced_are_counted_and_have_no_spans() -> None:
    traced = Traced()
    traced.deliver(created(1), untraced(7), created(3, flags="00"))
    assert str(traced) == text("""
        *1
          claim orders (3)
          publish orders #1 ok -> claim
          ack orders (3)
    """)


def test_where_no_message_is_traced_there_are_no_spans() -> None:
    traced = Traced()
    traced.deliver(untraced(7), untraced(8, a="b"), created(3, flags="00"))
    traced.deliver()
    assert traced.spans == []


def test_the_spans_of_a_claim_and_of_what_settles_it_are_one_for_each_destination() -> None:
    traced = Traced()
    traced.deliver(created(1), created(2, destination="mails"))
    assert sorted(span.name for span in traced.spans) == [
        "ack mails",
        "ack orders",
        "claim mails",
        "claim orders",
        "publish mails",
        "publish orders",
    ]


def test_a_failed_attempt_and_its_repetition_are_in_the_same_trace() -> None:
    traced = Traced()
    traced.claim(created(1))
    traced.finalize(created(1), outcome=LATER[0], transition=LATER[1])
    traced.deliver(created(1, attempts=2, lease_version=2))
    assert str(traced) == text("""
        *1
          claim orders (1)
          publish orders #1 retryable ! retryable -> claim
          nack orders (1)
          claim orders (1)
          publish orders #2 ok -> claim
          ack orders (1)
    """)


def test_a_message_that_dies_is_rejected() -> None:
    traced = Traced()
    traced.claim(created(1))
    error = "answered 400 Bad Request"
    traced.finalize(created(1), outcome=PermanentFailure(error), transition=Bury(error))
    assert str(traced) == text("""
        *1
          claim orders (1)
          publish orders #1 permanent ! http_400 -> claim
          reject orders (1)
    """)


def test_a_deferral_is_no_error() -> None:
    traced = Traced()
    traced.claim(created(1))
    traced.finalize(created(1), outcome=Deferred(5, "later"), transition=DeferUntil(5, "later"))
    assert str(traced) == text("""
        *1
          claim orders (1)
          publish orders #1 deferred -> claim
          nack orders (1)
    """)


def test_what_was_never_published_has_no_publish() -> None:
    traced = Traced()
    traced.claim(created(1))
    traced.finalize(created(1), outcome=Unstarted(), transition=Release())
    assert str(traced) == text("""
        *1
          claim orders (1)
          nack orders (1)
    """)


def test_a_publish_that_the_drain_cancelled_says_so() -> None:
    traced = Traced()
    traced.claim(created(1))
    traced.finalize(created(1), outcome=Interrupted(), transition=Retry(1, "interrupted"))
    assert str(traced) == text("""
        *1
          claim orders (1)
          publish orders #1 cancelled ! cancelled -> claim
          nack orders (1)
    """)


def test_a_worker_that_takes_over_says_so_in_the_same_trace() -> None:
    first, second = Traced(), Traced()
    first.claim(created(1))
    second.deliver(created(1, attempts=2, lease_version=2, reclaims=1))
    assert tree([*first.spans, *second.spans]) == text("""
        *1
          claim orders (1)
          claim orders (1) [lease reclaimed]
          publish orders #2 ok [lease reclaimed] -> claim
          ack orders (1)
    """)


def test_a_lease_that_a_renewal_finds_lost_ends_the_publish() -> None:
    traced = Traced()
    message, waiting = created(1), created(2)
    traced.claim(message, waiting)
    traced.tell(LeaseLost([message, waiting], [1.0, None]))
    assert str(traced) == text("""
        claim orders (2) -> *1 *2
        *1
          publish orders #1 cancelled ! lease_lost [lease lost] -> claim
    """)


def test_a_lease_that_is_lost_before_the_result_is_written_is_told_there() -> None:
    traced = Traced()
    traced.claim(created(1))
    traced.finalize(created(1), into="lost")
    assert str(traced) == text("""
        *1
          claim orders (1)
          publish orders #1 ok -> claim
          ack orders (1) ! lease_lost [lease lost]
    """)


def test_renewals_are_told_by_the_publishes_that_they_are_for() -> None:
    traced = Traced()
    message, other = created(1), created(2)
    traced.claim(message, other)
    traced.tell(Renewed(1, 0.01, [message]), LeaseUnconfirmed([message]))
    traced.finalize(message, other)
    happened = [[event.name for event in span.events] for span in traced.named("publish")]
    assert happened == [["lease renewed", "lease unconfirmed"], []]


def test_a_row_that_is_gone_and_one_that_is_refused_are_errors_of_what_settles_them() -> None:
    traced = Traced()
    gone, refused = created(1), created(2)
    traced.claim(gone, refused)
    end = settled(refused, *LATER)
    why = Refused(end, "no such thing (SQLSTATE P0001)")
    traced.answer({"unknown": [settled(gone, *LATER)]}, [why])
    assert [line for line in str(traced).splitlines() if "nack" in line] == [
        "  nack orders (1) ! row_gone",
        "  nack orders (1) ! P0001",
    ]


def test_what_an_earlier_try_has_written_is_acknowledged_like_any_other() -> None:
    traced = Traced()
    traced.claim(created(1))
    traced.finalize(created(1), into="already_written")
    assert str(traced).splitlines()[-1].strip() == "ack orders (1)"


def test_a_bug_of_a_publisher_that_is_retried_is_named_by_its_exception() -> None:
    traced = Traced()
    message = created(1)
    traced.claim(message)
    traced.tell(PublisherFailed(message, KeyError("secret")))
    failure = RetryableFailure("unclassified: 'x'")
    traced.finalize(message, outcome=failure, transition=Retry(1, "unclassified: 'x'"))
    [line] = [line for line in str(traced).splitlines() if "publish" in line]
    assert line.strip() == "publish orders #1 retryable ! KeyError -> claim"


def test_a_bug_of_a_publisher_that_stops_the_worker_is_told_at_the_end() -> None:
    traced = Traced()
    traced.claim(created(1), created(2))
    traced.tell(PublisherFailed(created(1), KeyError()), DrainEnded(0, 0, 0, 2, 1.0))
    assert str(traced) == text("""
        claim orders (2) -> *1 *2
        *1
          publish orders #1 unclassified ! KeyError -> claim
    """)


@pytest.mark.parametrize(
    "stored",
    [
        "nonsense",
        f"00-{1:032x}-{1:016x}",
        f"00-{1:032x}-{1:016x}-01-more",
        f"ff-{1:032x}-{1:016x}-01",
        f"00-{0:032x}-{1:016x}-01",
        f"00-{1:032x}-{0:016x}-01",
        f"00-{0xABC:032X}-{1:016x}-01",
        f"01-{1:032x}-{1:016x}-01-{'x' * 500}",
        "01" * 100,
    ],
)
def test_a_malformed_or_oversized_context_is_dropped_and_delivers_the_message(stored: str) -> None:
    traced = Traced()
    bad = untraced(7, traceparent=stored)
    traced.deliver(bad, created(1))
    assert str(traced) == text("""
        *1
          claim orders (2)
          publish orders #1 ok -> claim
          ack orders (2)
    """)


def test_a_context_of_a_later_version_is_read_as_far_as_it_is_known() -> None:
    traced = Traced()
    traced.deliver(untraced(7, traceparent=f"01-{1:032x}-{1:016x}-03-more"))
    assert str(traced).startswith("*1\n")


def test_a_header_that_only_looks_like_a_context_is_none() -> None:
    traced = Traced()
    context = json.dumps({"traceparent": f"00-{1:032x}-{1:016x}-01"})
    traced.deliver(untraced(7, note=context), untraced(8, **{'x"traceparent': context}))
    assert traced.spans == []


def test_the_end_of_another_lease_of_the_same_row_ends_no_span() -> None:
    traced = Traced()
    traced.claim(created(1, lease_version=2))
    traced.finalize(created(1, lease_version=1), into="lost")
    traced.tell(LeaseLost([created(1, lease_version=1)], [1.0]))
    assert [span.name for span in traced.spans] == ["claim orders"]


def test_a_sampler_of_ones_own_decides_about_every_context() -> None:
    traced = Traced(decide=lambda stored: stored.trace_id[-1] == 2)
    traced.deliver(created(1), created(2, flags="00"), untraced(7))
    assert [span.trace_id[-1] for span in traced.named("publish")] == [2]
