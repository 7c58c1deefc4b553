"""``pgoutbox show``: the whole life of one message, in sentences."""

from __future__ import annotations

import json
import uuid
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner
from psycopg.types.json import Jsonb

from pgoutbox.cli.main import group
from pgoutbox.database import desk
from tests.support.outbox_rows import insert
from tests.support.roles import login_role

if TYPE_CHECKING:
    import psycopg
    from click.testing import Result

DEAD: dict[str, Any] = {
    "status": "dead",
    "pending_since": None,
    "attempts": 12,
    "last_error": "410 Gone",
}
LEASED = {"status": "processing", "lease_owner": "pod-1"}
BEFORE, AFTER = "2020-01-01Z", "2999-01-01Z"


def show(dsn: str, named: object, *words: str, **env: str) -> Result:
    environ = {"PGOUTBOX_DSN": dsn, "PGOUTBOX_DSN_FILE": None, **env}
    return CliRunner().invoke(
        group, ["show", str(named), *words], env=environ, catch_exceptions=False
    )


@pytest.mark.parametrize(
    ("row", "told"),
    [
        ({}, "it can be claimed since"),
        ({"available_at": AFTER}, "it will be tried at 2999-01-01"),
        ({"attempts": 1, "last_error": "503"}, "it had 1 attempt; the last error: 503"),
        (LEASED | {"lease_until": AFTER}, "pod-1 delivers it, with a lease for another"),
        (LEASED | {"lease_until": BEFORE}, "the lease of pod-1 ended"),
        (
            LEASED | {"lease_until": BEFORE, "attempts": 3, "reclaims": 2},
            "it had 3 attempts, the last 2 of which ended with their lease",
        ),
        ({"status": "done", "pending_since": None, "done_at": BEFORE}, "it was delivered at 2020"),
        (DEAD, "after 12 attempts: 410 Gone"),
        (DEAD, "pgoutbox dead requeue {id} --reason ..."),
        (DEAD | {"ordering_key": "k"}, "it blocks the messages behind it in its lane"),
        (DEAD | {"ordering_key": "k"}, "to let them go on: pgoutbox dead skip {id}"),
        (DEAD | {"ordering_key": "k", "done_at": BEFORE}, "its lane has gone on without it since"),
        ({"dedup_key": "o-1/paid"}, "its dedup key is 'o-1/paid'"),
        ({"destination": "mail"}, "no worker serves mail"),
    ],
)
def test_it_says_where_a_message_stands(
    dsn: str, conn: psycopg.Connection, row: dict[str, Any], told: str
) -> None:
    number = insert(conn, **row)
    result = show(dsn, number)
    assert result.exit_code == 0, result.stderr
    assert told.format(id=number) in result.stdout
    assert f"message {number} (" in result.stdout
    assert "is order_paid of order o-1" in result.stdout


@pytest.mark.parametrize("head", [DEAD, LEASED | {"lease_until": AFTER}])
def test_it_says_what_a_message_of_a_lane_waits_for(
    dsn: str, conn: psycopg.Connection, head: dict[str, Any]
) -> None:
    first, second = insert(conn, ordering_key="k", **head), insert(conn, ordering_key="k")
    result = show(dsn, second)
    assert f"it waits behind message {first} of its lane, which is {head['status']}" in (
        result.stdout
    )
    assert (f"pgoutbox dead show {first}" in result.stdout) == (head is DEAD)


def test_it_tells_who_decided_what_and_why_in_order(dsn: str, conn: psycopg.Connection) -> None:
    number = insert(conn, **DEAD, ordering_key="k")
    assert desk.skip(conn, number, "the customer is gone", schema="public").done
    assert desk.requeue(conn, number, "and is back", schema="public").done
    lines = show(dsn, number).stdout.splitlines()
    skipped = next(n for n, line in enumerate(lines) if "skipped it: the customer is gone" in line)
    assert "postgres requeued it: and is back" in lines[skipped + 1]
    assert "(it was dead after 12 attempts: 410 Gone)" in lines[skipped + 1]


@pytest.mark.parametrize("by", ["id", "message_id"])
def test_what_was_discarded_is_known_by_either_id(
    dsn: str, conn: psycopg.Connection, by: str
) -> None:
    number = insert(conn, **DEAD)
    [(message_id,)] = conn.execute("SELECT message_id FROM outbox").fetchall()
    assert desk.discard(conn, number, "never mind", schema="public").done
    result = show(dsn, number if by == "id" else message_id)
    assert result.exit_code == 0
    assert "discarded it: never mind" in result.stdout
    assert f"message {number} ({message_id}) is gone: it was discarded" in result.stdout


def test_what_was_requeued_delivered_and_removed_is_known_by_the_audit(
    dsn: str, conn: psycopg.Connection
) -> None:
    number = insert(conn, **DEAD)
    assert desk.requeue(conn, number, "mended", schema="public").done
    conn.execute("DELETE FROM outbox")
    result = show(dsn, number)
    assert "gone: after that it was delivered to default, and removed" in result.stdout


@pytest.mark.parametrize("row", [{}, DEAD, {"status": "done", "pending_since": None}])
def test_a_message_id_is_found_in_every_state(
    dsn: str, conn: psycopg.Connection, row: dict[str, Any]
) -> None:
    insert(conn)
    done = {"done_at": BEFORE} if row.get("status") == "done" else {}
    number = insert(conn, **row | done)
    [(message_id,)] = conn.execute(
        "SELECT message_id FROM outbox WHERE id = %s", [number]
    ).fetchall()
    told = json.loads(show(dsn, message_id, "--json").stdout)
    assert [one["row"]["id"] for one in told["messages"]] == [number]


@pytest.mark.parametrize("by", ["id", "message_id"])
def test_what_is_in_the_archive_is_found(dsn: str, conn: psycopg.Connection, by: str) -> None:
    conn.execute("SELECT outbox_archive_prepare(1)")
    number, message_id = 77, uuid.uuid4()
    conn.execute(
        "INSERT INTO outbox_archive (id, created_at, available_at, done_at, attempts, message_id,"
        " destination, aggregate_type, aggregate_id, event_type, content_type, headers, payload)"
        " VALUES (%s, now(), now(), now(), 1, %s, 'default', 'a', 'b', 'c', 'd', '{}', '1')",
        [number, message_id],
    )
    result = show(dsn, number if by == "id" else message_id)
    assert result.exit_code == 0, result.stderr
    assert "after 1 attempt, and is in outbox_archive" in result.stdout


def test_all_messages_with_the_same_message_id_are_told_about(
    dsn: str, conn: psycopg.Connection
) -> None:
    message_id = uuid.uuid4()
    numbers = [insert(conn, message_id=message_id, destination=name) for name in ("a", "b")]
    told = json.loads(show(dsn, message_id, "--json").stdout)
    assert [one["row"]["id"] for one in told["messages"]] == numbers


@pytest.mark.parametrize("named", [42, uuid.uuid4()])
def test_what_is_not_known_exits_with_1(dsn: str, named: object) -> None:
    result = show(dsn, named)
    assert (result.exit_code, result.stdout) == (1, "")
    assert f"nothing is known of {named}" in result.stderr


def test_a_search_for_a_message_id_ends_in_time_and_says_what_it_left_and_how_to_go_on(
    dsn: str, conn: psycopg.Connection
) -> None:
    conn.execute("ALTER TABLE outbox RENAME TO real")
    conn.execute(
        "CREATE VIEW outbox AS SELECT * FROM real"
        " WHERE status = 'dead' OR (SELECT true FROM pg_sleep(60))"
    )
    insert(conn)
    result = show(dsn, uuid.uuid4(), "--seconds", "0.05")
    assert result.exit_code == 1
    assert "is not dead and nobody decided about it" in result.stderr
    assert "not searched to the end within 0.05 seconds: --seconds allows more" in result.stderr


def test_a_search_for_an_id_ends_in_time_and_does_not_advise_to_search_for_that_id(
    dsn: str, conn: psycopg.Connection
) -> None:
    conn.execute("SELECT outbox_archive_prepare(1)")
    conn.execute("ALTER TABLE outbox_archive RENAME TO days")
    conn.execute(
        "CREATE VIEW outbox_archive AS SELECT * FROM days WHERE (SELECT true FROM pg_sleep(60))"
    )
    result = show(dsn, 77, "--seconds", "0.05")
    assert result.exit_code == 1
    assert "message 77 is not in the outbox" in result.stderr
    assert "the audit and the archive were not searched to the end" in result.stderr
    assert "outbox_ids" not in result.stderr


SECRET = {"card": {"number": "4111"}, "id": 7}
DEEP = b"[" * 3000 + b"4111" + b"]" * 3000


def test_payload_and_headers_are_shown_only_when_asked_for_and_without_what_is_hidden(
    dsn: str, conn: psycopg.Connection
) -> None:
    number = insert(conn, payload=Jsonb(SECRET), headers=Jsonb({"Token": "t-1", "trace": "x"}))
    assert "4111" not in show(dsn, number).stdout
    assert "payload" not in json.loads(show(dsn, number, "--json").stdout)["messages"][0]["row"]
    assert "4111" in show(dsn, number, "--payload").stdout
    hidden = {"PGOUTBOX_DESK__REDACT": "card.number, token"}
    for words in (["--payload"], ["--payload", "--json"]):
        shown = show(dsn, number, *words, **hidden).stdout
        assert '"number": "[redacted]"' in shown
        assert '"Token": "[redacted]"' in shown
        assert '"id": 7' in shown
        assert '"trace": "x"' in shown


def test_a_payload_too_deep_to_read_keeps_nobody_from_seeing_the_message(
    dsn: str, conn: psycopg.Connection
) -> None:
    number = insert(conn)
    conn.execute("UPDATE outbox SET payload = %s::jsonb", [DEEP.decode()])
    assert f"message {number} " in show(dsn, number).stdout
    assert "[[4111]]" in show(dsn, number, "--payload").stdout
    hidden = show(dsn, number, "--payload", PGOUTBOX_DESK__REDACT="card").stdout
    assert f'"body_bytes": {len(DEEP)}' in hidden
    assert "4111" not in hidden


@pytest.mark.parametrize(
    ("body", "redact", "shown"),
    [
        (json.dumps(SECRET).encode(), "card.number", '"number": "[redacted]"'),
        (b"card 4111", "card.number", '"body_bytes": 9'),
        (b"card 4111", "", '"body": "card 4111"'),
        (b"4111", "card.number", '"body_bytes": 4'),
        (b"4111", "", '"payload": 4111'),
        (DEEP, "card.number", f'"body_bytes": {len(DEEP)}'),
        (DEEP, "", "[[4111]]"),
        (b"\xff\x00", "", '"body_bytes": 2'),
    ],
)
def test_of_a_body_that_is_not_json_size_and_hash_are_shown_where_parts_are_to_be_hidden(
    dsn: str, conn: psycopg.Connection, body: bytes, redact: str, shown: str
) -> None:
    number = insert(conn, payload=None, body=body, content_type="text/plain")
    result = show(dsn, number, "--payload", PGOUTBOX_DESK__REDACT=redact)
    assert shown in result.stdout
    assert ("4111" in result.stdout) == (redact == "" and b"4111" in body)


def test_it_works_for_a_member_of_the_desk_and_says_what_others_lack(
    dsn: str, conn: psycopg.Connection
) -> None:
    number = insert(conn, **DEAD)
    with login_role(dsn, "outbox_desk") as person, login_role(dsn, "outbox_operator") as other:
        assert show(person.dsn, number).exit_code == 0
        assert show(person.dsn, uuid.uuid4()).exit_code == 1
        refused = show(other.dsn, number)
    assert refused.exit_code == 1
    assert "this role may not see messages" in refused.stderr
    assert "outbox_desk" in refused.stderr
