"""What is too much is left out and counted, and nothing stays of what nobody hears of again."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pgoutbox.events import (
    Claimed,
    DrainEnded,
    LeaseLost,
    PublisherFailed,
    Renewed,
)
from pgoutbox.outcome import Retry, RetryableFailure
from pgoutbox.telemetry.tracing import observer
from tests.support.otlp import attributes
from tests.support.traced import Traced, created, untraced

if TYPE_CHECKING:
    from pgoutbox.telemetry.tracing.context import Stored

HUNG = TimeoutError("the publisher ignored its cancellation")


def test_a_claim_has_at_most_128_links_and_counts_all() -> None:
    traced = Traced(slots=200)
    traced.deliver(*(created(number, id=number) for number in range(1, 201)))
    for span in (traced.named("claim")[0], traced.named("ack")[0]):
        assert len(span.links) == 128
        assert span.dropped_links_count == 72
        assert attributes(span)["messaging.batch.message_count"] == 200
    assert len(traced.named("publish")) == 200


def test_links_that_fit_are_not_counted_as_dropped() -> None:
    traced = Traced(slots=200)
    # All in one trace, and one of them is the parent.
    traced.deliver(*(created(1, number) for number in range(1, 130)))
    [claim] = traced.named("claim")
    assert (len(claim.links), claim.dropped_links_count) == (128, 0)


def test_events_beyond_32_are_counted() -> None:
    traced = Traced()
    message = created(1)
    traced.claim(message)
    traced.tell(*[Renewed(1, 0.01, [message])] * 40)
    traced.finalize(message)
    [publish] = traced.named("publish")
    assert (len(publish.events), publish.dropped_events_count) == (32, 8)


def test_of_a_batch_32_events_are_told_and_the_others_counted() -> None:
    traced = Traced(slots=40)
    messages = [created(number, reclaims=1) for number in range(1, 41)]
    traced.claim(*messages)
    traced.finalize(*messages, into="lost")
    for span in (traced.named("claim")[0], traced.named("ack")[0]):
        assert (len(span.events), span.dropped_events_count) == (32, 8)


def test_a_message_that_its_own_worker_took_over_has_both_publishes() -> None:
    traced = Traced()
    late, again = created(1), created(1, attempts=2, lease_version=2, reclaims=1)
    traced.claim(late)
    traced.claim(again)
    traced.finalize(late, into="lost")
    traced.finalize(again)
    assert [attributes(span)["outbox.attempt"] for span in traced.named("publish")] == [1, 2]


def test_a_bug_that_nothing_follows_is_told_before_the_drain() -> None:
    traced = Traced()
    hung = created(1)
    traced.claim(hung)
    traced.tell(PublisherFailed(hung, HUNG))
    traced.claim(untraced(7))
    assert traced.named("publish") == []
    traced.now += observer.PATIENCE
    traced.claim(untraced(7))
    [publish] = traced.named("publish")
    assert attributes(publish)["outbox.outcome"] == "unclassified"
    assert attributes(publish)["error.type"] == "TimeoutError"
    traced.tell(DrainEnded(0, 0, 0, 1, 1.0))
    assert len(traced.named("publish")) == 1


def test_a_bug_that_is_retried_is_told_once() -> None:
    traced = Traced()
    message = created(1)
    traced.claim(message)
    traced.tell(PublisherFailed(message, KeyError()))
    failure = RetryableFailure("unclassified")
    traced.finalize(message, outcome=failure, transition=Retry(1, "unclassified"))
    traced.now += observer.PATIENCE
    traced.tell(Renewed(0, 0.01), DrainEnded(0, 0, 0, 0, 1.0))
    assert [attributes(span)["outbox.outcome"] for span in traced.named("publish")] == ["retryable"]


def test_no_more_is_kept_than_a_worker_can_hold() -> None:
    traced = Traced(slots=10)
    for number in range(1, 101):
        # Of a batch that hangs, one message is named.
        batch = [created(number, span) for span in range(1, 6)]
        traced.claim(*batch)
        traced.tell(PublisherFailed(batch[0], HUNG))
    assert len(traced._tracing._held) <= 20
    assert len(traced._tracing._failed) <= 20


def test_what_a_worker_holds_now_outlives_what_nobody_heard_of() -> None:
    traced = Traced(slots=10)
    for number in range(1, 101):
        traced.claim(created(number))
    held = [created(number) for number in range(91, 101)]
    traced.finalize(*held)
    assert len(traced.named("publish")) == 10


def test_nothing_is_kept_of_what_has_ended() -> None:
    traced = Traced()
    messages = [created(number, id=number) for number in range(1, 10)]
    traced.deliver(*messages)
    lost = created(20)
    traced.tell(Claimed([lost], 0, 0.01), PublisherFailed(lost, HUNG), LeaseLost([lost], [1.0]))
    assert traced._tracing._held == {}
    assert traced._tracing._failed == {}


def test_links_and_children_have_the_flags_that_were_stored() -> None:
    def of_every_trace(_: Stored) -> bool:
        return True

    traced = Traced(decide=of_every_trace)
    traced.deliver(created(1, flags="00"), created(2, flags="03"))
    [claim] = traced.named("claim")
    # 0x300: it is known to be remote.
    assert [link.flags for link in claim.links] == [0x300, 0x303]
    assert [span.flags for span in traced.named("publish")] == [0x301, 0x303]
