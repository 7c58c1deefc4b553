"""The oracle on leases: what a late publish is excused for, and what it is not."""

from __future__ import annotations

import pytest

from tests.support.order_oracle import TAKEN, Pause, Publish
from tests.support.order_tales import LEASE, PLACE, Tale


@pytest.fixture
def tale() -> Tale:
    return Tale()


def overtaken(tale: Tale) -> None:
    """A stalled worker's lease runs out in its publish, and another one does its work."""
    tale.commit("m1", "m2")
    tale.claims("a", "m1", "m2")
    tale.calls("a", "m1", 3.0, 40.0)
    tale.tick(LEASE)
    tale.becomes("m1", "m2", owner="b", version=2)
    tale.changes[-1] = tale.changes[-1]._replace(
        owner=None, lease_until=None, status="pending", attempts=0
    )
    tale.publishes_it("b", "m1")
    tale.finishes("m1")
    tale.delivers("b", "m2")


def test_a_publish_that_outlives_its_lease_is_counted_and_not_refused(tale: Tale) -> None:
    overtaken(tale)
    assert tale.problems == []
    # The stalled one ran beside both of the other's.
    assert tale.counts["overlaps after a lease ran out"] == 2
    assert tale.counts["leases taken over after they ran out"] == 2
    assert tale.counts["repeats"] == 1


def test_the_same_overlap_is_refused_where_the_lease_had_not_run_out(tale: Tale) -> None:
    tale.commit("m1", "m2")
    tale.claims("a", "m1")
    tale.calls("a", "m1", 3.0, 40.0)
    tale.finishes("m1")
    tale.delivers("b", "m2")
    assert any("under a lease that nobody had taken over" in one for one in tale.problems)


def test_the_same_overlap_is_refused_where_the_lease_ran_out_only_later(tale: Tale) -> None:
    tale.commit("m1")
    tale.claims("a", "m1")
    tale.calls("a", "m1", 3.0, 40.0)
    tale.calls("b", "m1", 4.0, 5.0)
    tale.tick(LEASE)
    tale.delivers("b", "m1")
    assert tale.refused("under a lease that nobody had taken over")


def test_a_worker_must_not_go_on_with_what_was_taken_from_it(tale: Tale) -> None:
    overtaken(tale)
    tale.publishes.append(Publish("m2", 1, "a", PLACE, 40.1, 41.0, TAKEN))
    assert tale.refused("a began m2")


@pytest.mark.parametrize("lane", [None, "k"])
def test_nothing_may_begin_after_its_lease_though_nobody_has_taken_it_over(
    tale: Tale, lane: str | None
) -> None:
    tale.commit("m1", lane=lane)
    tale.claims("a", "m1")
    tale.tick(LEASE)
    tale.publishes_it("a", "m1")
    tale.finishes("m1")
    assert tale.refused("after its lease had ended")


def test_a_renewed_lease_is_as_good_as_a_new_one(tale: Tale) -> None:
    tale.commit("m1")
    tale.claims("a", "m1")
    tale.tick(LEASE / 2)
    tale.becomes("m1", owner="a")
    tale.tick(LEASE / 2)
    tale.publishes_it("a", "m1")
    tale.finishes("m1")
    assert tale.problems == []


def test_nothing_may_begin_after_it_was_given_back(tale: Tale) -> None:
    tale.commit("m1", lane=None)
    tale.claims("a", "m1")
    tale.gives_back("m1")
    tale.publishes_it("a", "m1", "RetryableError")
    tale.delivers("a", "m1")
    assert tale.refused("a began m1 1.000 s after its lease had ended")


def test_nothing_may_be_published_without_a_lease(tale: Tale) -> None:
    tale.commit("m1")
    tale.publishes_it("a", "m1", "RetryableError")
    tale.delivers("a", "m1")
    assert tale.refused("after its lease had ended")


def test_a_success_that_came_too_late_does_not_even_free_its_own_worker(tale: Tale) -> None:
    tale.commit("m1", "m2")
    tale.claims("a", "m1", "m2")
    tale.tick(LEASE)
    tale.claims("b", "m1", "m2")
    tale.publishes_it("b", "m1", seconds=9.0)
    tale.publishes_it("b", "m2")
    tale.finishes("m1", "m2")
    tale.publishes.append(Publish("m1", 1, "a", PLACE, 3.0, 15.0, TAKEN))
    tale.publishes.append(Publish("m2", 1, "a", PLACE, 15.1, 15.2, TAKEN))
    assert any("before m1 was settled" in problem for problem in tale.problems)


EXCUSED = "publishes begun after the lease by a worker that was stopped before the call"


def stopped_before_the_call(tale: Tale, *, since: float = 5.0, until: float = 30.0) -> None:
    """The stalled worker calls only once it goes on, after another one did its work."""
    overtaken(tale)
    tale.pauses.append(Pause("a", since, until))
    tale.publishes[0] = tale.publishes[0]._replace(began=until + 0.001)


def test_a_worker_that_was_stopped_between_its_look_and_the_call_could_not_know(tale: Tale) -> None:
    stopped_before_the_call(tale, until=15.0)
    assert tale.problems == []
    assert tale.counts["overlaps after a lease ran out"] == 1
    assert tale.counts[EXCUSED] == 1


def test_one_that_was_stopped_between_two_of_a_run_could_not_know_either(tale: Tale) -> None:
    overtaken(tale)
    tale.publishes[0] = tale.publishes[0]._replace(ended=4.0)
    tale.pauses.append(Pause("a", 5.0, 40.0))
    tale.publishes.append(Publish("m2", 1, "a", PLACE, 40.1, 41.0, TAKEN))
    assert tale.problems == []
    assert tale.counts[EXCUSED] == 1


def test_only_the_first_call_after_the_stop_is_excused(tale: Tale) -> None:
    stopped_before_the_call(tale)
    tale.publishes[0] = tale.publishes[0]._replace(ended=30.002)
    tale.publishes.append(Publish("m2", 1, "a", PLACE, 30.003, 31.0, TAKEN))
    assert any("a began m2" in problem for problem in tale.problems)
    assert not any("a began m1" in problem for problem in tale.problems)


def test_a_batch_that_was_about_to_begin_is_excused_as_one_call(tale: Tale) -> None:
    tale.commit("m1", "m2", lane=None)
    tale.claims("a", "m1", "m2")
    tale.pauses.append(Pause("a", 5.0, 30.0))
    for message in ("m1", "m2"):
        tale.calls("a", message, 30.001, 31.0)
    tale.tick(40.0)
    tale.finishes("m1", "m2")
    assert tale.problems == []
    assert tale.counts[EXCUSED] == 2


def test_a_stop_excuses_nothing_where_the_lease_had_ended_before_it(tale: Tale) -> None:
    stopped_before_the_call(tale, since=12.5)
    assert tale.refused("a began m1")


def test_a_stop_excuses_no_other_worker(tale: Tale) -> None:
    stopped_before_the_call(tale)
    tale.pauses[0] = tale.pauses[0]._replace(worker="c")
    assert tale.refused("a began m1")


def test_a_stop_excuses_no_call_before_its_end(tale: Tale) -> None:
    stopped_before_the_call(tale)
    tale.publishes[0] = tale.publishes[0]._replace(began=29.0)
    assert tale.refused("a began m1")


def test_an_arrival_after_the_message_was_taken_over_may_be_out_of_order(tale: Tale) -> None:
    overtaken(tale)
    first = next(call for call in tale.publishes if call.worker == "b")
    tale.publishes[tale.publishes.index(first)] = first._replace(outcome="PermanentError")
    for place, change in enumerate(tale.changes):
        if change.message == "m1" and change.status == "done":
            tale.changes[place] = change._replace(status="dead")
    assert tale.problems == []
    assert tale.counts["arrivals out of order after a lease ran out"] == 1
