"""What no statement may leave behind in a lane: histories made by hand, most of them wrong."""

from __future__ import annotations

import pytest

from tests.support.order_tales import LEASE, Tale


@pytest.fixture
def tale() -> Tale:
    return Tale()


def test_a_lease_must_not_be_taken_before_it_runs_out(tale: Tale) -> None:
    tale.commit("m1")
    tale.claims("a", "m1")
    tale.delivers("b", "m1")
    assert tale.refused("row 1 was taken from a by b")


def test_two_owners_must_not_hold_leases_in_a_lane_at_once(tale: Tale) -> None:
    tale.commit("m1", "m2")
    tale.claims("a", "m1")
    tale.claims("b", "m2")
    tale.publishes_it("a", "m1")
    tale.publishes_it("b", "m2")
    tale.finishes("m1", "m2")
    assert tale.refused("a and b hold leases at the same time")


def test_a_lease_that_ran_out_holds_nothing_whatever_time_a_statement_tells(tale: Tale) -> None:
    tale.commit("m1", "m2")
    tale.claims("a", "m1", "m2")
    began = tale.now
    tale.tick(LEASE)
    tale.claims("b", "m1")
    tale.commit("m3")
    tale.changes[-1] = tale.changes[-1]._replace(at=began)
    tale.gives_back("m2")
    tale.publishes_it("b", "m1")
    tale.finishes("m1")
    tale.delivers("b", "m2", "m3")
    assert tale.problems == []


def test_a_run_must_begin_with_the_first_of_its_lane(tale: Tale) -> None:
    tale.commit("m1", "m2")
    tale.claims("a", "m2")
    tale.gives_back("m2")
    tale.delivers("a", "m1", "m2")
    assert tale.refused("row 2 is leased by a although row 1 comes first")


def test_a_run_must_have_no_gap(tale: Tale) -> None:
    tale.commit("m1", "m2", "m3")
    tale.claims("a", "m1", "m3")
    tale.gives_back("m1", "m3")
    tale.delivers("a", "m1", "m2", "m3")
    assert tale.refused("row 3 is leased by a although row 2 comes first")


def test_the_rest_of_a_run_must_be_given_back_with_the_one_that_failed(tale: Tale) -> None:
    tale.commit("m1", "m2")
    tale.claims("a", "m1", "m2")
    tale.publishes_it("a", "m1", "RetryableError")
    tale.gives_back("m1")
    tale.gives_back("m2")
    tale.delivers("a", "m1", "m2")
    assert tale.refused("row 2 is leased by a although row 1 comes first")


def test_changes_of_statements_that_ran_side_by_side_are_told_apart(tale: Tale) -> None:
    tale.commit("m1", "m2")
    tale.claims("a", "m1", "m2")
    tale.publishes_it("a", "m1", "RetryableError")
    tale.gives_back("m1", "m2")
    tale.commit("u", lane=None)
    tale.changes[-2:] = reversed(tale.changes[-2:])
    for message in ("m1", "m2", "u"):
        tale.delivers("a", message)
    assert tale.problems == []


def test_a_late_owner_must_not_keep_the_rest_of_a_run_that_was_taken_over(tale: Tale) -> None:
    tale.commit("m1", "m2")
    tale.claims("a", "m1", "m2")
    tale.tick(LEASE)
    tale.claims("b", "m1")
    tale.becomes("m2", owner="a")
    tale.publishes_it("b", "m1")
    tale.finishes("m1", "m2")
    tale.calls("a", "m2", tale.now, tale.now + 1)
    assert tale.refused("a and b hold leases at the same time")
