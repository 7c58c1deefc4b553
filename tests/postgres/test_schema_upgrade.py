"""A schema from before the rules moved, with messages in it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import psycopg
import pytest
from psycopg import errors

from pgoutbox.database import migrate
from pgoutbox.database.migrations import available
from tests.support.outbox_rows import insert

if TYPE_CHECKING:
    from collections.abc import Iterator

BEFORE = 4
ROWS = b"SELECT to_jsonb(o) FROM outbox o ORDER BY id"
MOMENT = "2024-01-01T00:00:00Z"
STATES: tuple[dict[str, Any], ...] = (
    {},
    {"ordering_key": "k", "dedup_key": "d"},
    {"available_at": "2999-01-01T00:00:00Z"},
    {"status": "processing", "lease_owner": "pod-1", "lease_until": MOMENT},
    {"status": "done", "pending_since": None, "done_at": MOMENT},
    {"status": "dead", "pending_since": None, "last_error": "é" * 2000},
)


@pytest.fixture
def old(empty_dsn: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[psycopg.Connection]:
    """An autocommit connection to the schema as it was."""
    with monkeypatch.context() as patch, psycopg.connect(empty_dsn) as conn:
        patch.setattr(migrate, "available", lambda: available()[:BEFORE])
        migrate.apply(conn, schema="public")
    with psycopg.connect(empty_dsn, autocommit=True) as conn:
        yield conn


def upgrade(dsn: str) -> None:
    with psycopg.connect(dsn) as conn:
        assert migrate.apply(conn, schema="public")[0].version == BEFORE + 1


def test_messages_in_every_state_stay_as_they_are_and_obey_the_rules(
    old: psycopg.Connection, empty_dsn: str
) -> None:
    for state in STATES:
        insert(old, **state)
    before = old.execute(ROWS).fetchall()
    upgrade(empty_dsn)
    assert old.execute(ROWS).fetchall() == before
    assert old.execute("UPDATE outbox SET attempts = attempts + 1").rowcount == len(STATES)
    for broken in (b"destination = 'Bank'", b"lease_until = NULL", b"attempts = -1"):
        with pytest.raises(errors.CheckViolation):
            old.execute(b"UPDATE outbox SET " + broken + b" WHERE status = 'processing'")


def test_a_session_with_prepared_statements_goes_on_and_meets_the_new_rules(
    old: psycopg.Connection, empty_dsn: str
) -> None:
    statement = """
        INSERT INTO outbox (aggregate_type, aggregate_id, event_type, payload, destination,
                            ordering_key)
        VALUES ('t', 'i', 'e', '1', %s, 'k')
    """
    old.execute(statement, ["bank"], prepare=True)
    upgrade(empty_dsn)
    old.execute(statement, ["bank"], prepare=True)
    with pytest.raises(errors.CheckViolation) as refused:
        old.execute(statement, ["Bank"], prepare=True)
    assert refused.value.diag.constraint_name == "outbox_destination_name"


def test_a_repeat_of_a_dedup_key_from_before_inserts_nothing(
    old: psycopg.Connection, empty_dsn: str
) -> None:
    call = "SELECT outbox_enqueue('t', 'i', 'e', '1', dedup_key => 'd', ordering_key => 'k')"
    first = old.execute(call).fetchone()
    upgrade(empty_dsn)
    assert old.execute(call).fetchone() == first
    assert old.execute("SELECT count(*) FROM outbox").fetchone() == (1,)


def test_a_producers_search_path_cannot_change_what_the_rules_mean(
    conn: psycopg.Connection,
) -> None:
    conn.execute("""
        CREATE SCHEMA evil;
        CREATE FUNCTION evil.never(text, text) RETURNS boolean LANGUAGE sql RETURN false;
        CREATE OPERATOR evil.!~ (LEFTARG = text, RIGHTARG = text, FUNCTION = evil.never);
        SET search_path = evil, public, pg_catalog;
    """)
    assert conn.execute("SELECT 'Bank'::text !~ '^[a-z]*$'::text").fetchone() == (False,)
    with pytest.raises(errors.CheckViolation) as refused:
        insert(conn, destination="Bank")
    assert refused.value.diag.constraint_name == "outbox_destination_name"


def test_what_a_trigger_of_the_users_makes_of_a_row_is_held_to_the_rules(
    conn: psycopg.Connection,
) -> None:
    conn.execute("""
        CREATE FUNCTION tenant() RETURNS trigger LANGUAGE plpgsql AS $$
        BEGIN
            NEW.destination := 'Bad Name';
            RETURN NEW;
        END $$;
        CREATE TRIGGER tenant BEFORE INSERT ON outbox FOR EACH ROW EXECUTE FUNCTION tenant()
    """)
    with pytest.raises(errors.CheckViolation, match="outbox_destination_name"):
        insert(conn)
