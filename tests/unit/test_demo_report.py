"""The demo's figures, its verdict and its exit code."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import UUID

import pytest
from click.testing import CliRunner

from pgoutbox.cli.demo import command
from pgoutbox.demo import perform
from pgoutbox.demo.report import Findings, broken_promises, report_of, summary
from pgoutbox.demo.workers import Told

if TYPE_CHECKING:
    from collections.abc import Iterable

    from click.testing import Result

KEYS = [
    "committed",
    "rolled_back",
    "delivered_distinct",
    "duplicates_seen",
    "duplicates_absorbed",
    "dead",
    "lost",
    "reclaimed",
    "lease_lost",
    "handed_back",
    "drain_seconds",
]


def ids(numbers: Iterable[int]) -> set[UUID]:
    return {UUID(int=number) for number in numbers}


REFUSED, DECLINED, UNKNOWN = ids([10]), ids([90, 91]), ids([99])
COMMITTED = ids(range(1, 11))
DELIVERED = dict.fromkeys(COMMITTED - REFUSED, 1)

GOOD = Findings(
    committed=COMMITTED,
    rolled_back=DECLINED,
    refused=REFUSED,
    requested=COMMITTED,
    effects=DELIVERED,
    dead=REFUSED,
    duplicates_seen=4,
    duplicates_absorbed=3,
    told=Told(reclaimed=5, lease_lost=6, handed_back=7),
    killed="worker-1",
    stranded=5,
    stopped="worker-2",
    drain_seconds=1.2345,
    exit_codes={"worker-2": 0, "worker-3": 0},
)


def test_the_report_counts_distinct_messages() -> None:
    assert report_of(GOOD).as_dict() == {
        "committed": 10,
        "rolled_back": 2,
        "delivered_distinct": 9,
        "duplicates_seen": 4,
        "duplicates_absorbed": 3,
        "dead": 1,
        "lost": 0,
        "reclaimed": 5,
        "lease_lost": 6,
        "handed_back": 7,
        "drain_seconds": 1.23,
    }
    assert list(report_of(GOOD).as_dict()) == KEYS


def test_effects_of_what_was_never_committed_hide_no_loss() -> None:
    effects = dict.fromkeys(COMMITTED - REFUSED - ids([1]) | UNKNOWN, 1)
    report = report_of(replace(GOOD, effects=effects))
    assert (report.delivered_distinct, report.lost) == (8, 1)


def test_nothing_is_broken_when_everything_arrived_once_or_is_rightly_dead() -> None:
    assert broken_promises(GOOD) == []


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"effects": dict.fromkeys(COMMITTED - REFUSED - ids([1, 2]), 1)}, "is 2, not 0"),
        ({"dead": REFUSED | ids([1])}, "is -1, not 0"),
        ({"requested": COMMITTED | ids([91])}, "although rolled back: 1"),
        ({"effects": DELIVERED | dict.fromkeys(DECLINED, 1)}, "although rolled back: 2"),
        ({"requested": COMMITTED | UNKNOWN}, "does not know: 1"),
        ({"effects": DELIVERED | dict.fromkeys(ids([3, 4]), 2)}, "more than once: 2"),
        ({"effects": DELIVERED | dict.fromkeys(REFUSED, 1), "dead": set()}, "dead: 0; refused"),
        (
            {
                "effects": dict.fromkeys(COMMITTED - ids([1]), 1),
                "dead": ids([1]),
            },
            "dead: 1; refused by the consumer: 1",
        ),
        ({"exit_codes": {"worker-2": 1}}, "worker-2 exited with 1 after SIGTERM"),
        ({"exit_codes": {"worker-3": None}}, "worker-3 did not end after SIGTERM"),
    ],
)
def test_every_broken_promise_is_told(change: dict[str, Any], sentence: str) -> None:
    told = broken_promises(replace(GOOD, **change))
    assert any(sentence in line for line in told), told


def test_the_summary_names_who_was_killed_and_who_was_stopped() -> None:
    text = summary(GOOD)
    assert "worker-1 was killed while it held 5" in text
    assert "worker-2 was told to stop" in text
    assert "exited with 0 after 1.23 s" in text


def play(monkeypatch: pytest.MonkeyPatch, findings: Findings, *words: str) -> Result:
    broken = broken_promises(findings)
    logs = Path("/where/the/logs/are") if broken else None

    def ending(*_: object, **__: object) -> perform.Ending:
        return perform.Ending(findings, broken, logs)

    monkeypatch.setattr(perform, "perform", ending)
    return CliRunner().invoke(command, words, standalone_mode=False)


def test_a_good_ending_is_exit_code_0_and_json_is_the_last_line(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    result = play(monkeypatch, GOOD, "--json")
    assert result.return_value == 0
    assert result.stderr == ""
    last = json.loads(result.stdout.splitlines()[-1])
    assert list(last) == KEYS
    assert last["lost"] == 0


def test_a_broken_promise_is_exit_code_1_and_says_where_the_logs_are(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    result = play(monkeypatch, replace(GOOD, requested=COMMITTED | DECLINED))
    assert result.return_value == 1
    assert "although rolled back: 2" in result.stderr
    assert "/where/the/logs/are" in result.stderr
    assert "{" not in result.stdout
