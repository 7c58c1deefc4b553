"""What facts about a database mean."""

from __future__ import annotations

import dataclasses
from typing import Any, Literal

import pytest

from pgoutbox.database.checks import Verdict, Wanted, judge
from pgoutbox.database.facts import Facts, Server
from pgoutbox.database.migrations import Applied, available
from pgoutbox.database.retention import EXPIRE, PREPARE, Archive

SERVER = Server(
    version=180006,
    encoding="UTF8",
    in_recovery=False,
    read_only=False,
    isolation="read committed",
    role="worker",
    connections=97,
    connected=5,
)
CURRENT = tuple(Applied(one.version, one.name, one.checksum) for one in available())
GOOD = Facts(
    server=SERVER,
    applied=CURRENT,
    missing_rights=(),
    newest_id=10,
    sequence=10,
    owed=(),
    keeps_options=True,
    notified=True,
)


def verdict_on(wanted: Wanted | None = None, **changes: Any) -> Verdict:
    server = {key: changes.pop(key) for key in list(changes) if hasattr(SERVER, key)}
    facts = dataclasses.replace(GOOD, server=dataclasses.replace(SERVER, **server), **changes)
    return judge(facts, wanted or Wanted())


def test_a_good_database_has_neither_problems_nor_warnings() -> None:
    assert verdict_on() == Verdict((), (), GOOD)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"version": 130011}, "server_version must be at least 14 (it is 13)"),
        ({"encoding": "SQL_ASCII"}, "server_encoding must be UTF8"),
        ({"in_recovery": True}, "is a standby that takes no writes"),
        ({"read_only": True}, "default_transaction_read_only must be off"),
        ({"isolation": "serializable"}, "(it is serializable). ALTER ROLE worker SET"),
        ({"isolation": "repeatable read"}, "must be read committed"),
        ({"applied": ()}, "there is no outbox in schema"),
        (
            {"missing_rights": ("UPDATE on outbox",)},
            "lacks rights in schema public: UPDATE on outb",
        ),
        ({"sequence": 9}, "is behind the newest message's id (10)"),
        ({"sequence": 0}, "Run setval('public.outbox_id_seq', 10)"),
    ],
)
def test_what_keeps_a_worker_from_its_work_is_a_problem(change: dict[str, Any], says: str) -> None:
    verdict = verdict_on(**change)
    [problem] = verdict.problems
    assert says in str(problem)
    assert not verdict.warnings


@pytest.mark.parametrize(
    ("archive", "mode", "says"),
    [
        (Archive(days=0, missing_days=4, missing_rights=(EXPIRE, PREPARE)), "keep", []),
        (Archive(days=0, missing_days=4, missing_rights=(EXPIRE, PREPARE)), "delete", []),
        (Archive(days=4, missing_days=0, missing_rights=()), "archive", []),
        (Archive(days=4, missing_days=4, missing_rights=(PREPARE,)), "delete", []),
        (
            Archive(days=4, missing_days=4, missing_rights=(EXPIRE,)),
            "keep",
            ["role worker lacks EXECUTE on function outbox_archive_expire(interval), so what was"],
        ),
        (
            Archive(days=0, missing_days=4, missing_rights=()),
            "archive",
            ["outbox_archive has no partition for 4 of the 4 days"],
        ),
        (
            Archive(days=1, missing_days=3, missing_rights=("INSERT on outbox_archive", PREPARE)),
            "archive",
            [
                "lacks what the retention mode archive needs: INSERT on outbox_archive, EXECUTE",
                "Call outbox_archive_prepare() as the owner",
            ],
        ),
        (
            Archive(days=1, missing_days=3, missing_rights=(), in_the_way=("outbox_archive_1",)),
            "archive",
            [
                "outbox_archive_1 is in the way",
                "A worker makes them within five minutes once nothing is in the way",
            ],
        ),
        (
            Archive(days=1, missing_days=3, missing_rights=(), in_the_way=("outbox_archive_1",)),
            "keep",
            [],
        ),
    ],
)
def test_an_archive_that_would_not_work_is_a_warning(
    archive: Archive, mode: Literal["keep", "delete", "archive"], says: list[str]
) -> None:
    verdict = verdict_on(Wanted(retention=mode), archive=archive)
    assert not verdict.problems
    assert len(verdict.warnings) == len(says)
    for said, warning in zip(says, verdict.warnings, strict=True):
        assert said in str(warning)


def test_a_changed_migration_is_a_problem() -> None:
    changed = (CURRENT[0]._replace(checksum="0" * 64), *CURRENT[1:])
    assert len(verdict_on(applied=changed).problems) == 1


def test_a_schema_that_cannot_be_read_is_told_once() -> None:
    [problem] = verdict_on(missing_rights=("USAGE on schema public",), applied=()).problems
    assert "USAGE on schema public" in problem.rule


def test_a_sequence_that_cannot_be_read_is_not_judged() -> None:
    assert not verdict_on(sequence=None).problems
    assert not verdict_on(newest_id=None).problems


def test_everything_is_told_at_once() -> None:
    verdict = verdict_on(encoding="LATIN1", in_recovery=True, applied=(), sequence=1)
    assert len(verdict.problems) == 4


def test_a_lost_notification_means_polling_in_auto_mode() -> None:
    verdict = verdict_on(notified=False)
    assert not verdict.problems
    [warning] = verdict.warnings
    assert "polling only" in warning.rule
    assert "PGOUTBOX_LISTEN_DSN" in warning.advice


def test_a_lost_notification_is_a_problem_for_who_insists() -> None:
    verdict = verdict_on(Wanted(wakeup="notify"), notified=False)
    assert [problem.field for problem in verdict.problems] == ["PGOUTBOX_WAKEUP__MODE"]
    assert not verdict.warnings


def test_a_lost_notification_is_nothing_to_who_polls() -> None:
    assert verdict_on(Wanted(wakeup="poll"), notified=False) == Verdict(
        (), (), dataclasses.replace(GOOD, notified=False)
    )


def test_a_pooler_is_a_problem_only_where_it_was_denied() -> None:
    [problem] = verdict_on(Wanted(pooler="none"), keeps_options=False).problems
    assert problem.field == "PGOUTBOX_DATABASE__POOLER"
    for wanted in (Wanted(pooler="auto"), Wanted(pooler="transaction")):
        assert not verdict_on(wanted, keeps_options=False).problems


def test_a_role_that_cannot_prune_is_warned_of() -> None:
    verdict = verdict_on(missing_rights=("DELETE on outbox",))
    assert not verdict.problems
    assert "finished messages stay for ever" in verdict.warnings[0].rule


def test_messages_that_nobody_here_serves_are_warned_of() -> None:
    owed = ("billing", "default", "orders")
    [warning] = verdict_on(Wanted(destinations=("default",)), owed=owed).warnings
    assert warning.rule.endswith("billing, orders")
    assert not verdict_on(Wanted(destinations=()), owed=owed).warnings


@pytest.mark.parametrize(("connected", "count"), [(92, 0), (93, 0), (94, 1)])
def test_too_few_free_connections_for_one_worker_are_warned_of(connected: int, count: int) -> None:
    assert len(verdict_on(Wanted(pool_max=3), connected=connected).warnings) == count


def test_connections_behind_a_pooler_say_nothing() -> None:
    assert not verdict_on(connected=97, keeps_options=False).warnings
