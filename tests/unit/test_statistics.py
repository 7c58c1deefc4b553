from __future__ import annotations

from typing import Any

import pytest

from pgoutbox.database.statistics import Statistics, parse
from pgoutbox.errors import MigrationError

COUNTS = {
    "ready": 1,
    "waiting": 0,
    "scheduled": 0,
    "processing": 0,
    "expired": 0,
    "dead": 0,
    "ready_lanes": 0,
    "blocked_lanes": 0,
    "oldest_pending_age": 2.5,
    "oldest_ready_age": 1.5,
    "oldest_blocked_age": 0.0,
}
WORKER = {
    "owner": "pod-1",
    "incarnation": "3b241101-e2bb-4255-8caf-4136c566a962",
    "version": "1.0",
    "state": "running",
    "slots": 200,
    "busy": 7,
    "counters": {},
    "destinations": {"bank": {}},
    "started_at": "2024-01-01T00:00:00+00:00",
    "seen_age": 59.0,
}


def answer(workers: list[dict[str, Any]], **destinations: dict[str, Any]) -> Statistics:
    return parse({"at": 1.0, "cap": 10, "destinations": destinations, "workers": workers})


def test_what_a_newer_schema_adds_is_left_out() -> None:
    found = answer([WORKER | {"mood": "fine"}], bank=COUNTS | {"colour": "blue"})
    assert found.destinations["bank"].oldest_pending_age == 2.5
    assert found.workers[0].busy == 7


def test_what_was_added_lately_is_unknown_where_the_schema_is_older() -> None:
    found = answer([], bank=COUNTS).destinations["bank"]
    assert (found.ready_unordered, found.processing_lanes, found.next_due_in) == (None, None, None)


def test_undelivered_is_what_a_worker_still_has_to_do() -> None:
    counts = COUNTS | {"ready": 1, "waiting": 2, "scheduled": 4, "processing": 8, "dead": 16}
    assert answer([], bank=counts | {"expired": 8}).destinations["bank"].undelivered == 15


def test_the_answer_of_an_older_schema_is_told_to_migrate() -> None:
    older = {name: count for name, count in COUNTS.items() if name != "waiting"}
    with pytest.raises(MigrationError, match=r"nothing of 'waiting'\): run `pgoutbox migrate`"):
        answer([], bank=older)


def test_a_destination_is_served_by_a_worker_that_was_seen_lately_and_runs() -> None:
    assert answer([WORKER], bank=COUNTS).unserved(within=60) == []
    assert answer([WORKER | {"seen_age": 61.0}], bank=COUNTS).unserved(within=60) == ["bank"]
    assert answer([WORKER | {"state": "draining"}], bank=COUNTS).unserved(within=60) == ["bank"]
    assert answer([WORKER], mail=COUNTS).unserved(within=60) == ["mail"]


def test_a_destination_with_nothing_but_dead_letters_needs_no_worker() -> None:
    assert answer([], bank=COUNTS | {"ready": 0, "dead": 3}).unserved(within=60) == []
