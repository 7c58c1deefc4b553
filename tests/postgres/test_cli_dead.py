"""``pgoutbox dead``: decisions from the command line."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import psycopg
import pytest
from click.testing import CliRunner

from pgoutbox.cli.main import group
from pgoutbox.database.migrate import apply
from tests.support.outbox_rows import insert
from tests.support.roles import login_role

if TYPE_CHECKING:
    from click.testing import Result

BLOCKING = {"status": "dead", "pending_since": None, "ordering_key": "k"}


def dead(dsn: str, *words: str) -> Result:
    env = {"PGOUTBOX_DSN": dsn, "PGOUTBOX_DSN_FILE": None, "PGOUTBOX_DATABASE__SCHEMA": None}
    return CliRunner().invoke(group, ["dead", *words], env=env, catch_exceptions=False)


def test_a_blocked_lane_is_unblocked_by_skipping_its_head(
    dsn: str, conn: psycopg.Connection
) -> None:
    number = insert(conn, **BLOCKING)
    result = dead(dsn, "skip", str(number), "--reason", "the customer is gone")
    assert (result.exit_code, result.stderr) == (0, "")
    assert result.stdout == f"the lane 'k' of default goes on without message {number}\n"
    assert conn.execute("SELECT action, reason FROM outbox_audit").fetchall() == [
        ("skip", "the customer is gone")
    ]


def test_a_dead_message_is_requeued(dsn: str, conn: psycopg.Connection) -> None:
    number = insert(conn, **BLOCKING)
    result = dead(dsn, "requeue", str(number), "--reason", "  repaired ")
    assert result.exit_code == 0
    assert f"message {number} will be delivered" in result.stdout
    assert conn.execute("SELECT status FROM outbox").fetchone() == ("pending",)
    assert conn.execute("SELECT reason FROM outbox_audit").fetchone() == ("repaired",)


@pytest.mark.parametrize("verb", ["skip", "requeue"])
def test_a_decision_that_changes_nothing_exits_with_1_and_says_why(
    dsn: str, conn: psycopg.Connection, verb: str
) -> None:
    number = insert(conn)
    result = dead(dsn, verb, str(number), "--reason", "r")
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr == (f"pgoutbox: message {number} is not dead: it waits to be delivered\n")


def test_json_is_one_object_whatever_became_of_it(dsn: str, conn: psycopg.Connection) -> None:
    number = insert(conn, destination="mail", **BLOCKING)
    said = [dead(dsn, "skip", str(one), "--reason", "r", "--json") for one in (number, 99)]
    done, refused = (json.loads(result.stdout) for result in said)
    assert [result.exit_code for result in said] == [0, 1]
    assert set(done) == {"id", "done", "said", "message_id", "destination"}
    assert (done["id"], done["done"], done["destination"]) == (number, True, "mail")
    assert (refused["done"], refused["message_id"]) == (False, None)


def test_a_message_id_names_a_dead_message_as_well(dsn: str, conn: psycopg.Connection) -> None:
    number, other = insert(conn, **BLOCKING), insert(conn, **BLOCKING)
    message_id = message_id_of(conn, number)
    result = dead(dsn, "requeue", message_id.upper(), "--reason", "r")
    assert result.exit_code == 0, result.stderr
    assert result.stdout.startswith(f"message {number} will be delivered")
    found = conn.execute("SELECT id FROM outbox WHERE status = 'dead'").fetchall()
    assert found == [(other,)]


def test_a_message_id_that_several_dead_messages_have_decides_about_none(
    dsn: str, conn: psycopg.Connection
) -> None:
    number = insert(conn, destination="mail", **BLOCKING)
    message_id = message_id_of(conn, number)
    same = insert(conn, destination="bank", message_id=message_id, **BLOCKING)
    insert(conn, destination="shop", message_id=message_id)
    result = dead(dsn, "skip", message_id, "--reason", "r")
    assert result.exit_code == 1
    assert result.stderr.endswith(f"choose from {number} (to mail), {same} (to bank)\n")
    assert conn.execute("SELECT count(*) FROM outbox_audit").fetchone() == (0,)


def test_a_message_id_that_no_dead_message_has_is_told(dsn: str, conn: psycopg.Connection) -> None:
    message_id = message_id_of(conn, insert(conn))
    result = dead(dsn, "skip", message_id, "--reason", "r", "--json")
    assert result.exit_code == 1
    said = json.loads(result.stdout)
    assert (said["id"], said["done"], said["message_id"]) == (None, False, message_id)
    assert said["said"].startswith(f"no dead message has the message id {message_id}")


def message_id_of(conn: psycopg.Connection, number: int) -> str:
    [(found,)] = conn.execute("SELECT message_id::text FROM outbox WHERE id = %s", [number])
    return str(found)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("skip", "1"), "Missing option '--reason'"),
        (("skip", "1", "--reason", " "), "must not be empty"),
        (("requeue", "1", "--reason", "\udcff"), "lone surrogate"),
        (("requeue", "all", "--reason", "r"), "'all' is neither an id in the outbox"),
        (("requeue", "0", "--reason", "r"), "0 is not in the range"),
        (("requeue", "9" * 5000, "--reason", "r"), "is not in the range"),
        (("skip", str(2**63), "--reason", "r"), "is not in the range"),
        (("revive", "1"), "No such command 'revive'"),
    ],
)
def test_a_mistake_in_the_command_line_reaches_no_database(
    words: tuple[str, ...], says: str
) -> None:
    result = dead("host=127.0.0.1 port=1", *words)
    assert result.exit_code == 2
    assert says in result.stderr


def test_a_role_without_the_rights_is_told_which_grants_to_ask_for(
    dsn: str, conn: psycopg.Connection
) -> None:
    number = insert(conn, **BLOCKING)
    with login_role(dsn) as role:
        refused = dead(role.dsn, "skip", str(number), "--reason", "r")
        assert refused.exit_code == 1
        grants = refused.stderr.strip().partition("ask the owner for ")[2]
        for grant in grants.split("; "):
            conn.execute(grant.encode())
        assert dead(role.dsn, "skip", str(number), "--reason", "r").exit_code == 0


def test_the_schema_is_the_one_of_the_settings(empty_dsn: str) -> None:
    with psycopg.connect(empty_dsn, autocommit=True) as conn:
        apply(conn, schema="Events")
        conn.execute('SET search_path = "Events"')
        number = insert(conn, **BLOCKING)
    words = (str(number), "--reason", "r")
    missing = dead(empty_dsn, "skip", *words)
    assert missing.exit_code == 1
    assert "run `pgoutbox migrate`" in missing.stderr
    assert dead(empty_dsn, "skip", *words, "--schema", "Events").exit_code == 0
