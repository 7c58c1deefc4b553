"""What a condition means: where each verdict begins, and that a sound outbox has none."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from pgoutbox.database import findings
from pgoutbox.database.doctor import Condition
from pgoutbox.database.statistics import parse

if TYPE_CHECKING:
    from pgoutbox.database.findings import Finding

SOUND = Condition(
    autovacuum=True,
    track_counts=True,
    fsync=True,
    table_autovacuum=True,
    plain_autovacuum=False,
    frozen_age=1000,
    freeze_max_age=200_000_000,
    live=1000,
    dead=0,
    vacuums=3,
    table_bytes=2**20,
    index_bytes=2**20,
    invalid_indexes=[],
    disabled_triggers=[],
    connected=10,
    connections=100,
    waiting_for_locks=0,
)
QUIET = {
    "ready": 0,
    "waiting": 0,
    "scheduled": 0,
    "processing": 0,
    "expired": 0,
    "dead": 0,
    "ready_lanes": 0,
    "blocked_lanes": 0,
    "oldest_pending_age": 0.0,
    "oldest_ready_age": 0.0,
    "oldest_blocked_age": 0.0,
}


def judged(**condition: Any) -> list[Finding]:
    found = replace(SOUND, **condition)
    return [
        *findings.of_table(found, schema="shop"),
        *findings.of_vacuum(found, schema="shop"),
        *findings.of_server(found, pool_max=3),
    ]


def waiting(*, seen_age: float = 1.0, **counts: float) -> list[Finding]:
    """For a destination that one worker serves, if it lives."""
    worker = {
        "owner": "pod-1",
        "incarnation": "1",
        "version": "1",
        "state": "running",
        "slots": 10,
        "busy": 0,
        "counters": {},
        "destinations": {"mail": {}},
        "started_at": "2020-01-01Z",
        "seen_age": seen_age,
    }
    statistics = {
        "at": 0.0,
        "cap": 10,
        "workers": [worker],
        "destinations": {"mail": QUIET | counts},
    }
    return list(findings.of_messages(parse(statistics)))


def test_a_sound_outbox_has_no_findings() -> None:
    assert judged() == []
    assert waiting(ready=3, oldest_ready_age=1.0) == []


@pytest.mark.parametrize(
    ("condition", "severity", "seen", "do"),
    [
        ({"fsync": False}, "problem", "fsync is off", "SET fsync = on"),
        ({"autovacuum": False}, "problem", "off on this server", "SET autovacuum = on"),
        ({"track_counts": False}, "problem", "off on this server", "SET track_counts = on"),
        ({"table_autovacuum": False}, "problem", "off for shop.outbox", "RESET"),
        ({"plain_autovacuum": True}, "warning", "shop.outbox has lost", "scale_factor = 0.01"),
        ({"invalid_indexes": ["a"]}, "problem", "the index a is invalid", "REINDEX INDEX"),
        (
            {"disabled_triggers": ["t"]},
            "problem",
            "the trigger t of shop.outbox",
            "ENABLE TRIGGER t",
        ),
        ({"waiting_for_locks": 2}, "warning", "2 sessions waiting for a lock", "locks.sql"),
        ({"frozen_age": 180_000_001}, "warning", "180000001 transactions ago", "VACUUM (FREEZE)"),
        ({"dead": 10_101}, "warning", "about 10101 dead rows", "xmin horizon"),
        ({"table_bytes": 2**30}, "note", "takes 1025 MiB for about 1000 rows", "pg_repack"),
        ({"connected": 91}, "warning", "91 of 100 connections", "max_connections"),
    ],
)
def test_each_trouble_is_told_once_with_what_to_do(
    condition: dict[str, Any], severity: str, seen: str, do: str
) -> None:
    [finding] = judged(**condition)
    assert finding.severity == severity
    assert seen in finding.seen
    assert do in finding.do


@pytest.mark.parametrize(
    "condition",
    [
        {"frozen_age": 180_000_000},
        {"dead": 10_100},
        {"dead": 100_000, "live": 9_000_000},
        {"table_bytes": 2**30, "live": 250_000},
        {"table_bytes": 200 * 2**20, "live": 0},
        {"connected": 90},
    ],
)
def test_what_is_usual_is_not_worth_a_word(condition: dict[str, Any]) -> None:
    assert judged(**condition) == []


@pytest.mark.parametrize(
    ("vacuums", "told"), [(0, "and it was never vacuumed"), (4, "after 4 vacuums")]
)
def test_dead_rows_are_told_with_how_often_vacuum_came(vacuums: int, told: str) -> None:
    [finding] = judged(dead=50_000, vacuums=vacuums)
    assert told in finding.seen


@pytest.mark.parametrize(
    ("counts", "severity", "seen"),
    [
        ({"ready": 1, "oldest_ready_age": 301.0}, "warning", "could be claimed since 301 seconds"),
        ({"processing": 2, "expired": 2}, "warning", "2 messages for mail under a lease that ran"),
        (
            {"dead": 1, "blocked_lanes": 1, "oldest_blocked_age": 9.0},
            "warning",
            "1 lane of mail blocked by a dead message, the oldest for 9 seconds",
        ),
        ({"dead": 1}, "note", "1 dead message for mail"),
    ],
)
def test_what_waits_is_told_for_its_destination(
    counts: dict[str, float], severity: str, seen: str
) -> None:
    [finding] = waiting(**counts)
    assert finding.severity == severity
    assert seen in finding.seen


def test_what_nobody_serves_is_a_problem_and_its_age_no_finding_of_its_own() -> None:
    silent, unserved = waiting(seen_age=61.0, ready=2, oldest_ready_age=900.0)
    assert (silent.severity, unserved.severity) == ("note", "problem")
    assert "no worker serves mail: 2 messages undelivered" in unserved.seen
    assert "PGOUTBOX_DESTINATIONS__MAIL__URL" in unserved.do
