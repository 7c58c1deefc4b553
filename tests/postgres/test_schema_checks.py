from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import pytest
from psycopg import errors, sql
from psycopg.types.json import Jsonb

from tests.support.outbox_rows import PLAIN, insert, insert_into

if TYPE_CHECKING:
    import psycopg

MOMENT = "2024-01-01T00:00:00Z"
LEASED = {"status": "processing", "lease_owner": "pod-1", "lease_until": MOMENT}
DEAD = {"status": "dead", "pending_since": None}
WORKER = {
    "incarnation": "3b241101-e2bb-4255-8caf-4136c566a962",
    "owner": "pod-1",
    "version": "1",
    "state": "running",
    "slots": 1,
    "busy": 0,
}
AUDIT = {
    "action": "requeue",
    "reason": "the bank is back",
    "outbox_id": 1,
    "message_id": WORKER["incarnation"],
    "destination": "bank",
}
VALID: dict[str, dict[str, Any]] = {
    "outbox": PLAIN,
    "outbox_workers": WORKER,
    "outbox_wakeup": {},
    "outbox_inbox": {"consumer": "billing", "message_id": WORKER["incarnation"]},
    "outbox_audit": AUDIT,
}


class Refused(NamedTuple):
    constraint: str
    columns: dict[str, Any]
    table: str = "outbox"


REFUSED = [
    Refused("outbox_status_known", {"status": "lost", "pending_since": None}),
    Refused("outbox_one_payload", {"payload": None}),
    Refused("outbox_one_payload", {"body": b"two of them"}),
    Refused("outbox_one_payload", {"payload": Jsonb(None), "body": b""}),
    Refused("outbox_headers_strings", {"headers": Jsonb({"trace": 1})}),
    Refused("outbox_headers_strings", {"headers": Jsonb({"trace": None})}),
    Refused("outbox_headers_strings", {"headers": Jsonb({"trace": ["a"]})}),
    Refused("outbox_headers_strings", {"headers": Jsonb({"good": "a", "trace": {"b": "c"}})}),
    Refused("outbox_headers_strings", {"headers": Jsonb(["a"])}),
    Refused("outbox_headers_strings", {"headers": Jsonb("a")}),
    Refused("outbox_lease_whole", {"status": "processing"}),
    Refused("outbox_lease_whole", {"status": "processing", "lease_until": MOMENT}),
    Refused("outbox_lease_whole", {"status": "processing", "lease_owner": "pod-1"}),
    Refused("outbox_lease_whole", {"lease_owner": "pod-1"}),
    Refused("outbox_lease_whole", {"lease_owner": "pod-1", "lease_until": MOMENT}),
    Refused("outbox_lease_whole", DEAD | {"lease_owner": "pod-1", "lease_until": MOMENT}),
    Refused("outbox_pending_owed", {"pending_since": None}),
    Refused("outbox_pending_owed", LEASED | {"pending_since": None}),
    Refused("outbox_pending_owed", {"status": "dead"}),
    Refused("outbox_pending_owed", {"status": "done", "done_at": MOMENT}),
    Refused("outbox_times_finite", {"available_at": "infinity"}),
    Refused("outbox_times_finite", {"available_at": "-infinity"}),
    Refused("outbox_times_finite", {"created_at": "-infinity"}),
    Refused("outbox_times_finite", {"created_at": "20000-01-01"}),
    Refused("outbox_times_finite", {"created_at": "0044-03-15 BC"}),
    Refused("outbox_times_finite", {"created_at": "infinity"}),
    Refused("outbox_attempts_counted", {"attempts": 2147483647}),
    Refused("outbox_attempts_counted", {"reclaims": 2147483647}),
    Refused("outbox_done_dated", {"status": "done", "pending_since": None}),
    Refused("outbox_undone_undated", {"done_at": MOMENT}),
    Refused("outbox_undone_undated", LEASED | {"done_at": MOMENT}),
    Refused("outbox_attempts_counted", {"attempts": -1}),
    Refused("outbox_attempts_counted", {"reclaims": -1}),
    Refused("outbox_attempts_counted", {"lease_version": -1}),
    Refused("outbox_destination_name", {"destination": ""}),
    Refused("outbox_destination_name", {"destination": "Bank"}),
    Refused("outbox_destination_name", {"destination": "2bank"}),
    Refused("outbox_destination_name", {"destination": "bank-1"}),
    Refused("outbox_destination_name", {"destination": "bank\n"}),
    Refused("outbox_destination_name", {"destination": "b" * 41}),
    Refused("outbox_destination_name", {"destination": "bänk"}),
    Refused("outbox_ordering_key_fit", {"ordering_key": ""}),
    Refused("outbox_ordering_key_fit", {"ordering_key": "k" * 513}),
    Refused("outbox_ordering_key_fit", {"ordering_key": "é" * 257}),
    Refused("outbox_dedup_key_fit", {"dedup_key": ""}),
    Refused("outbox_dedup_key_fit", {"dedup_key": "k" * 513}),
    Refused("outbox_dedup_key_fit", {"dedup_key": "é" * 257}),
    Refused("outbox_names_fit", {"aggregate_type": ""}),
    Refused("outbox_names_fit", {"aggregate_id": ""}),
    Refused("outbox_names_fit", {"event_type": ""}),
    Refused("outbox_names_fit", {"aggregate_type": "n" * 513}),
    Refused("outbox_names_fit", {"aggregate_id": "n" * 513}),
    Refused("outbox_names_fit", {"event_type": "n" * 513}),
    Refused("outbox_content_type_fit", {"content_type": ""}),
    Refused("outbox_content_type_fit", {"content_type": "c" * 256}),
    Refused("outbox_error_fits", {"last_error": "e" * 2001}),
    Refused("outbox_workers_state_check", {"state": "resting"}, "outbox_workers"),
    Refused("outbox_workers_slots_check", {"slots": -1}, "outbox_workers"),
    Refused("outbox_workers_busy_check", {"busy": -1}, "outbox_workers"),
    Refused("outbox_wakeup_single_check", {"single": False}, "outbox_wakeup"),
    Refused("outbox_inbox_consumer_check", {"consumer": ""}, "outbox_inbox"),
    Refused("outbox_inbox_consumer_check", {"consumer": "c" * 256}, "outbox_inbox"),
    Refused("outbox_audit_action_check", {"action": "forget"}, "outbox_audit"),
    Refused("outbox_audit_reason_check", {"reason": ""}, "outbox_audit"),
]

ACCEPTED: list[dict[str, Any]] = [
    {"payload": Jsonb(None)},
    {"payload": None, "body": b""},
    {"headers": Jsonb({"traceparent": "00-1", "empty": ""})},
    LEASED,
    DEAD,
    DEAD | {"done_at": MOMENT},
    {"status": "done", "pending_since": None, "done_at": MOMENT},
    {"destination": "b" * 40},
    {"ordering_key": "k" * 512, "dedup_key": "é" * 256},
    {"aggregate_type": "n" * 512, "aggregate_id": "n" * 512, "event_type": "n" * 512},
    {"last_error": "é" * 2000, "content_type": "c" * 255},
]


def change(conn: psycopg.Connection, table: str, columns: dict[str, Any]) -> int:
    """Set ``columns`` of every row; how many there were."""
    statement = sql.SQL("UPDATE {} SET {}").format(
        sql.Identifier(table),
        sql.SQL(", ").join(sql.SQL("{} = %s").format(sql.Identifier(name)) for name in columns),
    )
    return conn.execute(statement, list(columns.values())).rowcount


def test_each_rule_refuses_inserts_that_break_it_and_is_named(conn: psycopg.Connection) -> None:
    for constraint, columns, table in REFUSED:
        with pytest.raises(errors.CheckViolation) as refused:
            insert_into(conn, table, **VALID[table] | columns)
        assert refused.value.diag.constraint_name == constraint, columns


def test_each_rule_refuses_updates_that_break_it_and_is_named(conn: psycopg.Connection) -> None:
    for table in VALID.keys() - {"outbox_wakeup"}:
        insert_into(conn, table, **VALID[table])
    for constraint, columns, table in REFUSED:
        with pytest.raises(errors.CheckViolation) as refused:
            change(conn, table, columns)
        assert refused.value.diag.constraint_name == constraint, columns


def test_no_rule_is_without_a_case(conn: psycopg.Connection) -> None:
    found = conn.execute("""
        SELECT conname FROM pg_constraint
         WHERE contype = 'c' AND connamespace = 'public'::regnamespace
        UNION
        SELECT m[1] FROM pg_proc, regexp_matches(prosrc, $$THEN '(outbox_[a-z_]+)'$$, 'g') m
         WHERE oid = 'outbox_check'::regproc
    """).fetchall()
    assert {name for (name,) in found} == {case.constraint for case in REFUSED}


def test_a_refusal_says_what_is_allowed_and_nothing_of_what_the_message_holds(
    conn: psycopg.Connection,
) -> None:
    told: dict[str | None, str] = {}
    for constraint, columns, table in REFUSED:
        if table == "outbox":
            with pytest.raises(errors.CheckViolation) as refused:
                insert(conn, **{"aggregate_id": "secret"} | columns)
            assert constraint in str(refused.value)
            assert "secret" not in str(refused.value)
            told[constraint] = refused.value.diag.message_detail or ""
    assert "1 to 512 bytes" in told["outbox_names_fit"]
    assert "lower-case" in told["outbox_destination_name"]


def test_a_column_that_may_not_be_null_is_told_from_a_broken_rule(conn: psycopg.Connection) -> None:
    never_null = ("status", "destination", "headers", "attempts", "lease_version", "event_type")
    for name in (*never_null, "available_at", "created_at", "aggregate_type", "content_type"):
        with pytest.raises(errors.NotNullViolation) as refused:
            insert(conn, **{name: None})
        assert refused.value.diag.column_name == name


def test_what_the_rules_allow_is_stored(conn: psycopg.Connection) -> None:
    for columns in ACCEPTED:
        insert(conn, **columns)
        conn.execute("DELETE FROM outbox")
        insert(conn)
        assert change(conn, "outbox", columns) == 1
    for table in ("outbox_workers", "outbox_inbox", "outbox_audit"):
        insert_into(conn, table, **VALID[table])


def test_a_plain_insert_is_a_pending_message_that_is_due_now(conn: psycopg.Connection) -> None:
    row = insert_into(conn, "outbox", **PLAIN)
    assert row["created_at"] == row["available_at"] == row["pending_since"]
    assert row["message_id"] is not None
    never = ("ordering_key", "dedup_key", "body", "lease_owner", "lease_until", "last_error")
    assert [row[name] for name in (*never, "done_at")] == [None] * 7
    expected = {
        "status": "pending",
        "destination": "default",
        "content_type": "application/json",
        "headers": {},
        "attempts": 0,
        "reclaims": 0,
        "lease_version": 0,
    }
    assert {name: row[name] for name in expected} == expected


def test_every_plain_insert_has_a_message_id_of_its_own(conn: psycopg.Connection) -> None:
    assert len({insert_into(conn, "outbox", **PLAIN)["message_id"] for _ in range(3)}) == 3


def test_a_producer_cannot_choose_the_id(conn: psycopg.Connection) -> None:
    with pytest.raises(errors.GeneratedAlways):
        insert(conn, id=7)


def test_the_wakeup_table_starts_with_its_one_row_switched_off(conn: psycopg.Connection) -> None:
    assert conn.execute("SELECT single, wanted FROM outbox_wakeup").fetchall() == [(True, False)]


def test_the_tables_autovacuum_comes_by_the_thousand(conn: psycopg.Connection) -> None:
    row = conn.execute("SELECT reloptions FROM pg_class WHERE oid = 'outbox'::regclass").fetchone()
    assert row is not None
    assert {"autovacuum_vacuum_scale_factor=0.01", "autovacuum_vacuum_threshold=1000"} <= set(
        row[0]
    )
