"""A person's decisions about dead letters: what they change, and what they leave alone."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import psycopg
import pytest
from psycopg.rows import dict_row

from pgoutbox.database import desk
from pgoutbox.database.migrate import apply
from tests.support.dispatching import row
from tests.support.outbox_rows import insert
from tests.support.roles import login_role

if TYPE_CHECKING:
    from collections.abc import Callable

    from pgoutbox.database.desk import Decision

    Decide = Callable[..., Decision]

DEAD = {"status": "dead", "pending_since": None, "attempts": 12, "last_error": "410 Gone"}
BLOCKING = DEAD | {"ordering_key": "k", "available_at": "2020-01-01Z"}
SKIPPED = BLOCKING | {"done_at": "2020-01-02Z"}
LEASED = {"status": "processing", "lease_owner": "pod-1", "lease_until": "2999-01-01Z"}
DONE = {"status": "done", "pending_since": None, "done_at": "2020-01-02Z"}
COLUMNS = (
    "status, attempts, reclaims, lease_version, pending_since, available_at, done_at, ordering_key"
)
ROLE = (
    f"SELECT, UPDATE ({COLUMNS}) ON outbox",
    "INSERT (action, reason, outbox_id, message_id, destination, details) ON outbox_audit",
)


def skip(conn: psycopg.Connection[Any], number: int) -> Decision:
    return desk.skip(conn, number, "it is a test", schema="public")


def requeue(conn: psycopg.Connection[Any], number: int) -> Decision:
    return desk.requeue(conn, number, "it is a test", schema="public")


def changes(before: dict[str, Any], after: dict[str, Any]) -> set[str]:
    return {name for name, value in before.items() if after[name] != value}


def audited(conn: psycopg.Connection[Any]) -> list[dict[str, Any]]:
    with conn.cursor(row_factory=dict_row) as cursor:
        return cursor.execute("SELECT * FROM outbox_audit ORDER BY id").fetchall()


def heads(conn: psycopg.Connection[Any]) -> list[int]:
    """The rows that are still in a lane, in its order."""
    found = conn.execute(
        "SELECT id FROM outbox WHERE ordering_key IS NOT NULL AND done_at IS NULL ORDER BY id"
    )
    return [number for (number,) in found]


def test_a_skipped_message_stays_dead_and_only_leaves_its_lane(conn: psycopg.Connection) -> None:
    number = insert(conn, **BLOCKING)
    behind = insert(conn, ordering_key="k")
    before = row(conn, number)
    decision = skip(conn, number)
    assert decision.done
    assert decision.said == f"the lane 'k' of default goes on without message {number}"
    after = row(conn, number)
    assert changes(before, after) == {"done_at", "lease_version"}
    assert after["lease_version"] == before["lease_version"] + 1
    assert heads(conn) == [behind]


def test_a_requeued_message_that_blocks_its_lane_goes_first_again(conn: psycopg.Connection) -> None:
    number = insert(conn, **BLOCKING, reclaims=2)
    behind = insert(conn, ordering_key="k")
    before = row(conn, number)
    decision = requeue(conn, number)
    assert decision.said == (
        f"message {number} will be delivered to default before those that wait behind it in"
        " the lane 'k' of default"
    )
    after = row(conn, number)
    assert changes(before, after) == {
        *("status", "attempts", "reclaims", "lease_version", "available_at", "pending_since"),
    }
    assert (after["status"], after["attempts"], after["reclaims"]) == ("pending", 0, 0)
    assert heads(conn) == [number, behind]
    assert conn.execute(
        "SELECT available_at = pending_since AND available_at > now() - interval '1 minute'"
        "  FROM outbox WHERE id = %s",
        [number],
    ).fetchone() == (True,)


def test_a_requeued_message_whose_lane_went_on_without_it_leaves_the_lane(
    conn: psycopg.Connection,
) -> None:
    number = insert(conn, **SKIPPED)
    decision = requeue(conn, number)
    assert decision.said == (
        f"message {number} will be delivered to default out of order, since the lane 'k' of"
        " default went on without it"
    )
    after = row(conn, number)
    assert (after["status"], after["ordering_key"], after["done_at"]) == ("pending", None, None)
    assert heads(conn) == []
    (entry,) = audited(conn)
    assert entry["details"]["ordering_key"] == "k"
    assert entry["details"]["out_of_order"] is True


@pytest.mark.parametrize("columns", [DEAD, DEAD | {"done_at": "2020-01-02Z"}])
def test_an_unordered_message_is_requeued_with_all_its_attempts_and_its_message_id(
    conn: psycopg.Connection, columns: dict[str, Any]
) -> None:
    number = insert(conn, **columns, dedup_key="d")
    before = row(conn, number)
    decision = requeue(conn, number)
    assert decision.said == f"message {number} will be delivered to default"
    after = row(conn, number)
    assert (after["status"], after["attempts"], after["done_at"]) == ("pending", 0, None)
    assert after["message_id"] == before["message_id"] == str(decision.message_id)
    assert audited(conn)[0]["details"]["out_of_order"] is False


@pytest.mark.parametrize(
    ("columns", "said"),
    [
        ({}, "message 1 is not dead: it waits to be delivered"),
        (LEASED, "message 1 is not dead: it is being delivered by pod-1"),
        (DONE, "message 1 is not dead: it was delivered"),
    ],
)
@pytest.mark.parametrize("decide", [skip, requeue])
def test_what_is_not_dead_is_left_alone(
    conn: psycopg.Connection, decide: Decide, columns: dict[str, Any], said: str
) -> None:
    insert(conn, **columns)
    before = row(conn, 1)
    decision = decide(conn, 1)
    assert (decision.done, decision.said) == (False, said)
    assert row(conn, 1) == before
    assert audited(conn) == []


@pytest.mark.parametrize(
    ("columns", "said"),
    [
        (DEAD, "message {} has no ordering key, so it holds nobody back"),
        (SKIPPED, "the lane 'k' of default has gone on without message {} since 2020-01-02"),
    ],
)
def test_a_message_that_blocks_nothing_is_not_skipped(
    conn: psycopg.Connection, columns: dict[str, Any], said: str
) -> None:
    conn.execute("SET timezone = 'UTC'")
    number = insert(conn, **columns)
    before = row(conn, number)
    decision = skip(conn, number)
    assert not decision.done
    assert decision.said.startswith(said.format(number))
    assert row(conn, number) == before
    assert audited(conn) == []


@pytest.mark.parametrize("decide", [skip, requeue])
def test_a_message_that_is_not_there_is_said_to_be_gone(
    conn: psycopg.Connection, decide: Decide
) -> None:
    decision = decide(conn, 42)
    assert (decision.done, decision.message_id, decision.destination) == (False, None, None)
    assert decision.said == (
        "there is no message 42: it was discarded, it was delivered and removed, or it never was"
    )


def test_each_decision_is_audited_with_who_and_why(dsn: str, conn: psycopg.Connection) -> None:
    number = insert(conn, destination="mail", **BLOCKING)
    with login_role(dsn, *ROLE) as role, psycopg.connect(role.dsn, autocommit=True) as person:
        assert skip(person, number).done
        assert requeue(person, number).done
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            person.execute("UPDATE outbox_audit SET reason = 'another'")
    skipped, requeued = audited(conn)
    assert (skipped["action"], requeued["action"]) == ("skip", "requeue")
    for entry in (skipped, requeued):
        assert (entry["db_user"], entry["reason"]) == (role.name, "it is a test")
        assert (entry["outbox_id"], entry["destination"]) == (number, "mail")
        assert str(entry["message_id"]) == row(conn, number)["message_id"]
        assert entry["details"]["last_error"] == "410 Gone"
        assert entry["details"]["attempts"] == 12
        assert entry["details"]["dead_since"].startswith("2020-01-01")


@pytest.mark.parametrize("decide", [skip, requeue])
def test_a_decision_that_cannot_be_audited_is_not_taken(
    dsn: str, conn: psycopg.Connection, decide: Decide
) -> None:
    number = insert(conn, **BLOCKING)
    before = row(conn, number)
    with login_role(dsn, ROLE[0]) as role, psycopg.connect(role.dsn, autocommit=True) as person:
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            decide(person, number)
        assert row(conn, number) == before


@pytest.mark.parametrize("decide", [skip, requeue])
def test_workers_are_told_of_a_decision_whether_they_sleep_or_not(
    dsn: str, conn: psycopg.Connection, decide: Decide
) -> None:
    number = insert(conn, destination="mail", **BLOCKING)
    with psycopg.connect(dsn, autocommit=True) as ear:
        ear.execute("LISTEN outbox")
        assert decide(conn, number).done
        (told,) = ear.notifies(timeout=10, stop_after=1)
    assert told.payload == "mail"


def test_only_the_named_message_is_touched(conn: psycopg.Connection) -> None:
    number = insert(conn, **BLOCKING)
    others = [row(conn, insert(conn, **BLOCKING)) for _ in range(3)]
    skip(conn, number)
    requeue(conn, number)
    assert [row(conn, other["id"]) for other in others] == others


def test_the_outbox_is_the_one_of_the_schema(empty_dsn: str) -> None:
    with psycopg.connect(empty_dsn, autocommit=True) as conn:
        apply(conn, schema="Events")
        conn.execute('SET search_path = "Events"')
        number = insert(conn, **BLOCKING)
        conn.execute("SET search_path = public")
        assert desk.skip(conn, number, "a test", schema="Events").done
        assert conn.execute("SHOW search_path").fetchone() == ("public",)
