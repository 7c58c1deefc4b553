"""Where claims begin, how long runs are, and which lanes are looked at."""

from __future__ import annotations

import bisect

import pytest
from hypothesis import given, strategies as st

from pgoutbox.dispatch.pace import SHARE
from pgoutbox.dispatch.scan import (
    FIRST_RUN,
    FRONT,
    MAX_HOT,
    MAX_RUN,
    MAX_STEPS,
    RUN_SECONDS,
    LaneScan,
    Place,
    ReadyScan,
    RunLength,
    Start,
)

HERE = Place(1_700_000_000_000_000, 42)


def test_the_first_claim_begins_at_the_front() -> None:
    assert ReadyScan().start(100.0) == FRONT


def swept(now: float, *, sweep_every: float = 1.0) -> ReadyScan:
    """A scan whose first sweep was answered at once, and found nothing."""
    scan = ReadyScan(sweep_every)
    assert scan.start(now) == FRONT
    scan.brought(FRONT, None, full=False, now=now)
    return scan


def test_a_claim_begins_behind_the_last_row_while_there_are_more() -> None:
    scan = swept(100.0)
    scan.brought(FRONT, HERE, full=True, now=100.1)
    assert scan.start(100.5) == Start(HERE)


def test_a_claim_begins_a_few_seconds_ago_once_everything_was_found() -> None:
    scan = swept(100.0)
    scan.brought(FRONT, HERE, full=True, now=100.1)
    scan.brought(FRONT, HERE, full=False, now=100.2)
    assert scan.start(100.5) == Start(recent=True)


def test_a_claim_that_found_nothing_forgets_where_it_was() -> None:
    scan = swept(100.0)
    scan.brought(FRONT, HERE, full=True, now=100.1)
    scan.brought(FRONT, None, full=True, now=100.2)
    assert scan.start(100.5) == Start(recent=True)


def test_a_notification_that_nothing_explains_brings_the_next_sweep_forward() -> None:
    scan = ReadyScan(sweep_every=10.0)
    scan.start(100.0)
    scan.brought(FRONT, None, full=False, now=100.01)
    start = scan.start(102.0)
    assert start == Start(recent=True)
    assert scan.missed(start, 102.0)
    assert scan.start(102.0) == FRONT
    # There is nothing further to look for.
    assert not scan.missed(FRONT, 102.0)


def test_a_sweep_that_was_not_answered_is_sent_again() -> None:
    scan = ReadyScan(sweep_every=1.0)
    assert scan.start(100.0) == FRONT
    assert scan.start(100.5) == Start(recent=True)
    assert scan.start(101.0) == FRONT


def test_after_an_outage_the_first_claim_is_a_sweep() -> None:
    scan = swept(0.0)
    now = 10.0
    while now < 70.0:
        scan.failed(scan.start(now), slow=False)
        now += 2.0
    assert scan.start(now) == FRONT


def test_a_sweep_that_takes_longer_than_it_may_leaves_time_for_other_claims() -> None:
    scan = ReadyScan(sweep_every=1.0)
    scan.failed(scan.start(100.0), slow=True)
    start = scan.start(100.1)
    assert start == Start(recent=True)
    scan.brought(start, None, full=False, now=100.2)
    assert scan.start(101.0) == FRONT


def test_a_walk_rests_for_what_its_claims_took_and_not_for_what_came_between() -> None:
    scan = LaneScan(sweep_every=1.0)
    scan.begin(10.0)
    lanes = Lanes({"a", "b", "c"}, 1)
    for now in (10.0, 14.0, 18.0, 22.0):
        lanes.look(scan, now)
    assert not scan.walking
    scan.begin(23.0)
    assert scan.walking


def test_a_sweep_that_took_long_is_not_repeated_soon() -> None:
    scan = ReadyScan(sweep_every=1.0)
    assert scan.start(100.0) == FRONT
    scan.brought(FRONT, None, full=False, now=101.0)
    assert scan.start(101.0 + SHARE - 0.1) == Start(recent=True)
    assert scan.start(101.0 + SHARE) == FRONT


@given(st.lists(st.tuples(st.floats(0.001, 0.7), st.booleans()), max_size=50))
def test_what_is_behind_the_starting_point_waits_for_one_sweep_at_most(
    steps: list[tuple[float, bool]],
) -> None:
    scan = swept(100.0)
    now = last = 100.0
    for pause, full in steps:
        now += pause
        start = scan.start(now)
        if start == FRONT:
            last = now
        scan.brought(start, HERE, full=full, now=now)
        assert now - last < 1.0


def test_a_claim_that_should_have_found_something_sweeps_before_its_time() -> None:
    scan = swept(100.0)
    start = scan.start(100.1)
    assert scan.missed(start, 100.1)
    assert scan.start(100.1) == FRONT
    # That has looked everywhere.
    assert not scan.missed(FRONT, 100.1)


def test_runs_are_short_until_it_is_known_how_long_a_publish_takes() -> None:
    assert RunLength().rows == FIRST_RUN


@pytest.mark.parametrize(
    ("seconds", "rows"),
    [
        (0.0, MAX_RUN),
        (RUN_SECONDS / MAX_RUN, MAX_RUN),
        (RUN_SECONDS / 10, 10),
        (RUN_SECONDS, 1),
        (60.0, 1),
    ],
)
def test_a_run_takes_no_longer_than_others_may_wait(seconds: float, rows: int) -> None:
    length = RunLength()
    length.observe(seconds)
    assert length.rows == rows


@given(st.lists(st.floats(0.0, 1e6), min_size=1))
def test_a_run_is_never_empty_and_never_longer_than_the_longest(seconds: list[float]) -> None:
    length = RunLength()
    for each in seconds:
        length.observe(each)
    assert 1 <= length.rows <= MAX_RUN


def test_one_slow_publish_does_not_make_runs_short_for_long() -> None:
    length = RunLength()
    for _ in range(10):
        length.observe(0.0001)
    length.observe(1.0)
    assert length.rows == 1
    for _ in range(50):
        length.observe(0.0001)
    assert length.rows == MAX_RUN


class Lanes:
    """Lanes in key order, and a claim that looks at so many of them; none can be claimed."""

    def __init__(self, keys: set[str], steps: int) -> None:
        # As the server compares: by bytes.
        self.keys = sorted(keys, key=str.encode)
        self.steps = steps

    def look(
        self, scan: LaneScan, now: float, *, found: bool = False, took: float = 0.01
    ) -> list[str]:
        """One claim that ``took`` so many seconds; the lanes that it looked at."""
        behind = bisect.bisect_right(self.keys, scan.cursor.encode(), key=str.encode)
        seen = self.keys[behind : behind + self.steps]
        cursor = seen[-1] if seen else scan.cursor
        ended = len(seen) < self.steps
        scan.walked(cursor, found=found, ended=ended, sent=now - took, now=now)
        return seen


keys = st.sets(st.text(min_size=1, max_size=3), max_size=30)


@given(keys, st.text(max_size=3), st.integers(1, 10))
def test_a_walk_looks_at_every_lane_and_ends_when_it_has_come_round(
    present: set[str], cursor: str, steps: int
) -> None:
    lanes = Lanes(present, steps)
    scan = LaneScan(cursor=cursor)
    scan.begin(0.0)
    seen: list[str] = []
    looks = 0
    while scan.walking:
        seen += lanes.look(scan, 0.0)
        looks += 1
    assert set(seen) == present
    # The whole circle once, and what the last claim looked at beyond its beginning.
    assert len(seen) <= len(present) + steps
    assert looks <= len(present) // steps + 3


@given(keys, keys, st.text(max_size=3), st.integers(1, 10))
def test_a_walk_ends_whatever_becomes_of_the_lanes_meanwhile(
    before: set[str], after: set[str], cursor: str, steps: int
) -> None:
    scan = LaneScan(cursor=cursor)
    scan.begin(0.0)
    Lanes(before, steps).look(scan, 0.0)
    looks = 0
    while scan.walking:
        seen = Lanes(after, steps).look(scan, 0.0)
        looks += 1
        assert len(seen) <= steps
    assert looks <= len(after) // steps + 3


@given(keys, st.text(max_size=3), st.integers(1, 10), st.integers(0, 10))
def test_a_walk_goes_on_for_another_circle_from_where_something_was_found(
    present: set[str], cursor: str, steps: int, finds: int
) -> None:
    lanes = Lanes(present, steps)
    scan = LaneScan(cursor=cursor)
    scan.begin(0.0)
    for _ in range(finds):
        lanes.look(scan, 0.0, found=True)
        assert scan.walking
    seen: list[str] = []
    while scan.walking:
        seen += lanes.look(scan, 0.0)
    assert set(seen) == present


def test_a_walk_that_found_nothing_rests() -> None:
    scan = LaneScan(sweep_every=1.0)
    scan.begin(10.0)
    Lanes({"a"}, 500).look(scan, 10.01)
    assert not scan.walking
    scan.begin(11.0)
    assert not scan.walking
    scan.begin(11.02)
    assert scan.walking


def test_the_longer_a_walk_took_in_vain_the_longer_it_rests() -> None:
    scan = LaneScan(sweep_every=1.0)
    scan.begin(10.0)
    Lanes({"a"}, 500).look(scan, 12.0, took=2.0)
    scan.begin(12.0 + SHARE * 2.0 - 0.1)
    assert not scan.walking
    scan.begin(12.0 + SHARE * 2.0)
    assert scan.walking


def test_a_walk_that_cost_little_can_be_hastened() -> None:
    scan = LaneScan(sweep_every=1.0)
    scan.begin(10.0)
    Lanes({"a"}, 500).look(scan, 10.01)
    scan.hasten()
    scan.begin(10.01 + SHARE * 0.01 - 0.001)
    assert not scan.walking
    scan.begin(10.01 + SHARE * 0.01)
    assert scan.walking


def test_a_walk_under_way_is_not_begun_again() -> None:
    lanes = Lanes({"a", "b", "c"}, 1)
    scan = LaneScan()
    scan.begin(0.0)
    seen = lanes.look(scan, 0.0)
    while scan.walking:
        scan.begin(0.0)
        seen += lanes.look(scan, 0.0)
    assert seen == ["a", "b", "c"]


def test_a_lane_that_had_a_whole_run_is_tried_again() -> None:
    scan = LaneScan()
    scan.took("long", 7, 10, 10, 0.0)
    scan.took("short", 8, 9, 10, 0.0)
    assert scan.tries(set(), 10) == ["long"]
    scan.took("long", 17, 3, 10, 0.0)
    assert scan.tries(set(), 10) == []


def test_of_the_hot_lanes_that_one_is_tried_first_that_waited_longest() -> None:
    scan = LaneScan()
    for number, lane in enumerate("abc"):
        scan.took(lane, number, 10, 10, 0.0)
    assert scan.tries(set(), 2) == ["a", "b"]
    scan.took("a", 10, 10, 10, 1.0)
    assert scan.tries(set(), 2) == ["b", "c"]


def test_a_hot_lane_is_not_tried_while_this_worker_holds_something_of_it() -> None:
    scan = LaneScan()
    for lane in "abc":
        scan.took(lane, 1, 10, 10, 0.0)
    assert scan.tries({"a", "c", "z"}, 10) == ["b"]


def test_a_lane_that_was_tried_in_vain_is_not_hot_any_more() -> None:
    scan = LaneScan()
    for lane in "ab":
        scan.took(lane, 1, 10, 10, 0.0)
    scan.missed(["a", "unknown"])
    assert list(scan.hot) == ["b"]


def test_only_so_many_lanes_are_hot_and_those_seen_last_stay() -> None:
    scan = LaneScan()
    for number in range(2 * MAX_HOT):
        scan.took(str(number), number, 10, 10, 0.0)
    assert list(scan.hot) == [str(number) for number in range(MAX_HOT, 2 * MAX_HOT)]


def test_a_hot_lanes_head_is_looked_for_from_the_last_one_on_but_not_for_long() -> None:
    scan = LaneScan(sweep_every=1.0)
    scan.took("a", 7, 10, 10, 10.0)
    assert scan.head("a", 10.9) == 7
    assert scan.head("a", 11.0) == 0


def test_what_cannot_be_claimed_is_narrowed_down_to_one_lane() -> None:
    scan = LaneScan()
    assert not scan.careful
    looks = [scan.steps]
    while not scan.failed():
        assert scan.careful
        looks.append(scan.steps)
    assert looks[0] == MAX_STEPS
    assert looks[-1] == 1
    assert looks == sorted(looks, reverse=True)
    assert len(looks) <= 5
    assert scan.steps == 1


def test_a_scan_is_careful_until_it_works_at_full_width_again() -> None:
    scan = LaneScan()
    while not scan.failed():
        pass
    works = 0
    while scan.careful:
        scan.worked()
        works += 1
    assert scan.steps == MAX_STEPS
    assert works <= 10
