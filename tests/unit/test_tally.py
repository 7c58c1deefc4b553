from __future__ import annotations

import pytest

from pgoutbox.dispatch.tally import Attempts, DrainCount, Tally
from pgoutbox.events import Claimed, Finalized, LeaseLost, Refused, Renewed, Settled
from pgoutbox.outcome import (
    Bury,
    Deferred,
    DeferUntil,
    Finish,
    Interrupted,
    Outcome,
    PermanentFailure,
    Published,
    Release,
    Retry,
    RetryableFailure,
    Unavailable,
    Unstarted,
)
from tests.support.dispatching import a_message, settled

DONE = settled(a_message(), Finish())
BURIED = settled(a_message(), Bury("x"), PermanentFailure("x"))
RETRIED = settled(a_message(), Retry(1.0, "x"))
DEFERRED = settled(a_message(), DeferUntil(1.0, "x"))
HANDED_BACK = settled(a_message(), Release(), Unstarted())
INTERRUPTED = settled(a_message(), Retry(1.0, "x"), Interrupted())


def finalized(
    *written: Settled,
    already_written: tuple[Settled, ...] = (),
    lost: tuple[Settled, ...] = (),
    unknown: tuple[Settled, ...] = (),
    refused: tuple[Settled, ...] = (),
) -> Finalized:
    why = [Refused(each, "x") for each in refused]
    return Finalized(written, lost, already_written, unknown, why, 0.0)


def test_the_counters_of_a_worker_start_at_zero() -> None:
    assert Tally().counts == dict.fromkeys(
        ("claimed", "reclaimed", "published", "buried", "returned", "lease_lost"), 0
    )


def test_a_worker_counts_its_messages_and_not_its_events() -> None:
    tally = Tally()
    tally.on_event(Claimed([a_message(), a_message()], 0, 0.0))
    tally.on_event(Claimed([a_message()], 1, 0.0))
    tally.on_event(finalized(DONE, DONE, BURIED, RETRIED, DEFERRED, HANDED_BACK))
    tally.on_event(Renewed(7, 0.0))
    assert tally.counts == {
        "claimed": 3,
        "reclaimed": 1,
        "published": 2,
        "buried": 1,
        "returned": 3,
        "lease_lost": 0,
    }


def test_what_an_earlier_try_had_written_counts_once_and_what_is_unknown_never() -> None:
    tally = Tally()
    tally.on_event(finalized(DONE, already_written=(DONE,), unknown=(DONE,), refused=(DONE,)))
    assert tally.counts["published"] == 2


def test_a_lease_is_lost_to_a_renewal_or_to_a_finalize() -> None:
    tally = Tally()
    tally.on_event(LeaseLost([a_message(), a_message()]))
    tally.on_event(finalized(lost=(DONE,)))
    assert tally.counts["lease_lost"] == 3
    assert tally.counts["published"] == 0


def test_a_drain_tells_what_finished_from_what_was_handed_back_or_interrupted() -> None:
    count = DrainCount()
    count.on_event(Renewed(7, 0.0))
    count.on_event(finalized(DONE, BURIED, HANDED_BACK, INTERRUPTED, lost=(DONE,)))
    count.on_event(finalized(already_written=(DONE,)))
    assert (count.finished, count.handed_back, count.interrupted) == (3, 1, 1)


@pytest.mark.parametrize(
    "outcome", [Published(), Deferred(1.0, "later"), PermanentFailure("malformed")]
)
@pytest.mark.parametrize("probing", [False, True])
def test_an_attempt_that_was_answered_is_no_failure(outcome: Outcome, *, probing: bool) -> None:
    attempts = Attempts()
    attempts.count(outcome, probing=probing)
    assert (attempts.ended, attempts.failed) == (1, 0)


@pytest.mark.parametrize(
    "outcome",
    [
        RetryableFailure("503"),
        RetryableFailure("429", throttled=True),
        RetryableFailure("no answer", timed_out=True),
        Unavailable("refused", works_for_others=False),
        PermanentFailure("410", gone=True),
    ],
)
def test_an_attempt_that_may_work_later_failed_unless_it_was_a_probe(outcome: Outcome) -> None:
    attempts = Attempts()
    attempts.count(outcome, probing=False)
    attempts.count(outcome, probing=True)
    assert (attempts.ended, attempts.failed) == (1, 1)


@pytest.mark.parametrize("outcome", [Interrupted(), Unstarted()])
def test_what_the_worker_broke_off_is_no_attempt(outcome: Outcome) -> None:
    attempts = Attempts()
    attempts.count(outcome, probing=False)
    assert (attempts.ended, attempts.failed) == (0, 0)


def test_a_bug_in_a_publisher_fails_all_that_it_held_unless_they_were_probes() -> None:
    attempts = Attempts()
    attempts.bug(3, probing=False)
    attempts.bug(2, probing=True)
    assert (attempts.ended, attempts.failed) == (3, 3)
