"""The oracle itself: histories made by hand, most of which it must refuse."""

from __future__ import annotations

from math import inf

import pytest
from hypothesis import given, strategies as st

from tests.support.order_oracle import TAKEN, Publish
from tests.support.order_tales import LEASE, PLACE, Tale, good_tales


@pytest.fixture
def tale() -> Tale:
    return Tale()


def test_a_lane_that_is_published_in_its_order_is_accepted(tale: Tale) -> None:
    tale.commit("m1", "m2")
    tale.commit("m3")
    tale.claims("a", "m1", "m2")
    tale.publishes_it("a", "m1")
    tale.publishes_it("a", "m2", "RetryableError")
    tale.finishes("m1")
    tale.gives_back("m2")
    tale.claims("b", "m2", "m3")
    tale.publishes_it("b", "m2")
    tale.publishes_it("b", "m3")
    tale.finishes("m2", "m3")
    assert tale.problems == []


def test_unordered_messages_may_be_published_in_any_order_and_at_once(tale: Tale) -> None:
    tale.commit("m1", "m2", "m3", lane=None)
    tale.claims("b", "m3")
    tale.claims("a", "m1", "m2")
    for owner, message in (("b", "m3"), ("a", "m2"), ("a", "m1")):
        tale.calls(owner, message, 5.0, 6.0)
    tale.tick(5.0)
    tale.finishes("m3", "m1", "m2")
    assert tale.problems == []


def test_a_message_that_was_rolled_back_must_not_be_published(tale: Tale) -> None:
    tale.publishes.append(Publish("m1", 1, "a", PLACE, 1.0, 2.0, TAKEN))
    assert tale.refused("never committed")


@pytest.mark.parametrize("lane", [None, "k"])
def test_a_message_must_not_stay_behind(tale: Tale, lane: str | None) -> None:
    tale.commit("m1", lane=lane)
    assert tale.refused("still pending")


def test_a_committed_message_must_be_in_the_table(tale: Tale) -> None:
    tale.commit("m1")
    tale.changes.clear()
    assert tale.refused("not in the table")


def test_a_message_that_is_done_must_have_been_published(tale: Tale) -> None:
    tale.commit("m1")
    tale.claims("a", "m1")
    tale.publishes_it("a", "m1", "cut off")
    tale.finishes("m1")
    assert tale.refused("never published")


def test_only_what_comes_after_a_dead_head_may_stay_behind(tale: Tale) -> None:
    tale.commit("m1", "m2", "m3")
    tale.claims("a", "m1")
    tale.publishes_it("a", "m1", "PermanentError")
    tale.buries("m1")
    assert tale.problems == []
    tale.commit("x1", "x2", "x3", lane="x")
    tale.buries("x2")
    assert tale.refused("x1 of lane x is still pending")


def test_nothing_must_stay_behind_a_dead_message_that_was_skipped(tale: Tale) -> None:
    tale.commit("m1", "m2")
    tale.claims("a", "m1")
    tale.publishes_it("a", "m1", "PermanentError")
    tale.buries("m1", skipped=True)
    assert tale.refused("m2 of lane k is still pending")


def test_a_lane_may_go_on_after_a_dead_message_that_was_skipped(tale: Tale) -> None:
    tale.commit("m1", "m2")
    tale.claims("a", "m1")
    tale.publishes_it("a", "m1", "PermanentError")
    tale.buries("m1", skipped=True)
    tale.delivers("a", "m2")
    assert tale.problems == []


def test_nothing_must_be_published_after_a_dead_head(tale: Tale) -> None:
    tale.commit("m1", "m2")
    tale.claims("a", "m1")
    tale.publishes_it("a", "m1", "PermanentError")
    tale.buries("m1")
    tale.publishes_it("a", "m2", "RetryableError")
    assert any("before m1 was settled" in problem for problem in tale.problems)


def test_a_skipped_message_must_not_be_overtaken_while_it_is_still_published(tale: Tale) -> None:
    tale.commit("m1", "m2")
    tale.claims("a", "m1")
    tale.calls("a", "m1", 3.0, 20.0, "PermanentError")
    tale.buries("m1", skipped=True)
    tale.delivers("b", "m2")
    assert any("before m1 was settled" in problem for problem in tale.problems)


@pytest.mark.parametrize("lane", [None, "k"])
def test_a_message_must_not_come_to_the_publisher_of_another_destination(
    tale: Tale, lane: str | None
) -> None:
    tale.commit("m1", "m2", lane=lane)
    tale.delivers("a", "m1", "m2")
    tale.publishes[1] = tale.publishes[1]._replace(destination="elsewhere")
    assert tale.problems == ["m2 is for default, and a published it to elsewhere"]


def test_a_foreign_message_is_refused_though_its_publish_failed(tale: Tale) -> None:
    tale.commit("m1")
    tale.claims("a", "m1")
    tale.publishes_it("a", "m1", "PermanentError")
    tale.publishes[0] = tale.publishes[0]._replace(destination="elsewhere")
    tale.buries("m1")
    assert tale.refused("published it to elsewhere")


def test_ids_of_a_lane_must_follow_its_commits(tale: Tale) -> None:
    tale.commit("m1")
    tale.commit("m2")
    tale.delivers("a", "m1", "m2")
    first, second = tale.enqueued
    tale.enqueued = [first._replace(row=2), second._replace(row=1)]
    assert tale.refused("has the higher id")


def test_ids_of_a_lane_must_follow_the_order_within_a_transaction(tale: Tale) -> None:
    tale.commit("m1", "m2")
    tale.delivers("a", "m1", "m2")
    first, second = tale.enqueued
    tale.enqueued = [first._replace(row=2), second._replace(row=1)]
    assert tale.refused("has the higher id")


@pytest.mark.parametrize("together", [True, False])
def test_a_later_message_must_not_succeed_first(tale: Tale, *, together: bool) -> None:
    if together:
        tale.commit("m1", "m2")
    else:
        tale.commit("m1")
        tale.commit("m2")
    tale.claims("a", "m1", "m2")
    tale.publishes_it("a", "m2")
    tale.publishes_it("a", "m1")
    tale.finishes("m1", "m2")
    assert "lane k: m2 was published before m1" in tale.problems
    assert any("before m1 was settled" in problem for problem in tale.problems)


def test_commits_whose_order_is_not_known_may_be_published_either_way(tale: Tale) -> None:
    tale.commit("m1")
    tale.commit("m2")
    first, second = tale.enqueued
    tale.enqueued = [
        first._replace(earliest=0.0, latest=3.0),
        second._replace(earliest=2.0, latest=5.0),
    ]
    for owner, message in (("a", "m2"), ("a", "m1")):
        tale.changes.append(tale.last(message)._replace(status="done", left_lane=True))
        tale.publishes_it(owner, message)
    assert not any("published before" in problem for problem in tale.problems)
    assert not any("settled" in problem for problem in tale.problems)


def test_a_success_counts_though_its_lease_was_taken_over_afterwards(tale: Tale) -> None:
    tale.commit("m1", "m2")
    tale.claims("a", "m1", "m2")
    tale.publishes_it("a", "m2")
    tale.tick(LEASE)
    tale.claims("b", "m1", "m2")
    tale.publishes_it("b", "m1")
    tale.publishes_it("b", "m2")
    tale.finishes("m1", "m2")
    assert "lane k: m2 was published before m1" in tale.problems


def test_a_failed_publish_must_not_come_before_its_turn_either(tale: Tale) -> None:
    tale.commit("m1", "m2")
    tale.claims("a", "m1", "m2")
    tale.publishes_it("a", "m2", "RetryableError")
    tale.publishes_it("a", "m1")
    tale.publishes_it("a", "m2")
    tale.finishes("m1", "m2")
    assert tale.refused("m2 was published (RetryableError) by a")


def test_a_later_message_must_wait_until_the_one_before_it_has_ended(tale: Tale) -> None:
    tale.commit("m1", "m2")
    tale.claims("a", "m1", "m2")
    tale.calls("a", "m1", 3.0, 5.0)
    tale.calls("a", "m2", 4.0, 6.0)
    tale.tick(5.0)
    tale.finishes("m1", "m2")
    assert any("under a lease that nobody had taken over" in one for one in tale.problems)


def test_a_success_that_was_never_written_frees_nobody(tale: Tale) -> None:
    tale.commit("m1", "m2")
    tale.claims("a", "m1", "m2")
    tale.publishes_it("a", "m1")
    tale.tick(LEASE)
    tale.claims("b", "m1")
    tale.gives_back("m2")
    tale.claims("c", "m2")
    tale.publishes_it("c", "m2")
    tale.publishes_it("b", "m1")
    tale.finishes("m1", "m2")
    assert any("before m1 was settled" in problem for problem in tale.problems)


def test_a_success_that_was_never_written_frees_its_own_worker(tale: Tale) -> None:
    tale.commit("m1", "m2")
    tale.claims("a", "m1", "m2")
    tale.publishes_it("a", "m1")
    tale.publishes_it("a", "m2")
    tale.tick(LEASE)
    tale.claims("b", "m1", "m2")
    for message in ("m1", "m2"):
        tale.publishes_it("b", message)
    tale.finishes("m1", "m2")
    assert tale.problems == []


@given(good_tales())
def test_whatever_is_done_right_is_accepted(tale: Tale) -> None:
    assert tale.problems == []


@given(good_tales(), st.data())
def test_two_successes_that_change_places_are_refused(tale: Tale, data: st.DataObject) -> None:
    taken = [call for call in tale.publishes if call.outcome == TAKEN]
    lanes = {one.message: one.lane for one in tale.enqueued}
    pairs = [
        (one, two)
        for one in taken
        for two in taken
        if one.began < two.began and lanes[one.message] == lanes[two.message]
    ]
    if not pairs:
        return
    one, two = data.draw(st.sampled_from(pairs))
    tale.publishes = [call for call in tale.publishes if call not in (one, two)]
    tale.publishes += [
        one._replace(began=two.began, ended=two.ended),
        two._replace(began=one.began, ended=one.ended),
    ]
    assert any("published before" in problem for problem in tale.problems)


@given(good_tales(), st.data())
def test_a_publish_that_never_ends_is_refused_where_anything_comes_after_it(
    tale: Tale, data: st.DataObject
) -> None:
    lanes = {one.message: one.lane for one in tale.enqueued}
    call = data.draw(st.sampled_from(tale.publishes))
    later = [
        other
        for other in tale.publishes
        if other.began > call.began and lanes[other.message] == lanes[call.message]
    ]
    tale.publishes = [one for one in tale.publishes if one is not call]
    tale.publishes.append(call._replace(ended=inf))
    assert bool(later) == any("nobody had taken over" in one for one in tale.problems)
