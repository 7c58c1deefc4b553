"""What ``pgoutbox status`` says about lanes."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from click.testing import CliRunner

from pgoutbox.cli.main import group
from tests.support.outbox_rows import insert
from tests.support.roles import login_role

if TYPE_CHECKING:
    import psycopg

DEAD = {"status": "dead", "pending_since": None}
ADVICE = "repair what was wrong and `pgoutbox dead requeue` it, or `pgoutbox dead skip` it"


def status(dsn: str, *arguments: str) -> str:
    env = {"PGOUTBOX_DSN": dsn, "PGOUTBOX_DSN_FILE": None, "PGOUTBOX_DATABASE__SCHEMA": None}
    answer = CliRunner().invoke(group, ["status", *arguments], env=env, catch_exceptions=False)
    assert answer.exit_code == 0, answer.output
    return answer.stdout


def as_json(dsn: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(status(dsn, "--json"))
    return found


def block(conn: psycopg.Connection[Any], key: str, hours: int, destination: str = "mail") -> int:
    """A lane whose head died so many hours ago."""
    number = insert(conn, destination=destination, ordering_key=key, **DEAD)
    conn.execute(
        "UPDATE outbox SET available_at = now() - make_interval(hours => %s, mins => 5)"
        " WHERE id = %s",
        [hours, number],
    )
    return number


def test_lanes_are_columns_only_where_there_are_some(dsn: str, conn: psycopg.Connection) -> None:
    insert(conn, destination="bank")
    for column in ("waiting", "ready lanes", "blocked lanes", "oldest blocked"):
        assert column not in status(dsn).splitlines()[1]
    insert(conn, destination="bank", ordering_key="k")
    for column in ("waiting", "ready lanes", "blocked lanes", "oldest blocked"):
        assert column in status(dsn).splitlines()[1]


def test_people_see_what_waits_in_lanes_and_for_how_long_they_have_been_blocked(
    dsn: str, conn: psycopg.Connection
) -> None:
    block(conn, "a", 2)
    block(conn, "b", 26)
    insert(conn, destination="mail", ordering_key="a")
    insert(conn, destination="mail", ordering_key="c")
    insert(conn, destination="bank")
    title, columns, bank, mail, *_ = status(dsn).splitlines()
    assert title == "Messages:"
    assert [name.strip() for name in columns.split("  ") if name] == [
        *("destination", "ready", "waiting", "scheduled", "leased", "of which expired", "dead"),
        *("ready lanes", "blocked lanes", "oldest pending", "oldest ready", "oldest blocked"),
    ]
    assert bank.split()[:9] == ["bank", "1", "0", "0", "0", "0", "0", "0", "0"]
    assert mail.split()[:9] == ["mail", "1", "1", "0", "0", "0", "2", "1", "2"]
    assert (bank.split()[-1], mail.split()[-1]) == ("0.0s", "1d02h")


def test_a_blocked_lane_comes_with_its_message_and_what_to_do(
    dsn: str, conn: psycopg.Connection
) -> None:
    number = block(conn, "a", 2)
    assert (
        f"1 lane of mail is blocked by a dead message, for 2h05m (message {number}):"
        f" {ADVICE}" in status(dsn).splitlines()
    )


def test_of_many_blocked_lanes_those_that_have_been_for_longest_are_named(
    dsn: str, conn: psycopg.Connection
) -> None:
    numbers = [block(conn, f"k{hours}", hours) for hours in (1, 2, 3, 4)]
    oldest = ", ".join(map(str, numbers[:0:-1]))
    assert (
        "4 lanes of mail are blocked by a dead message, the oldest for 4h05m"
        f" (messages {oldest}, ...): {ADVICE}" in status(dsn).splitlines()
    )


def test_json_names_the_messages_that_block_and_the_age_of_the_oldest(
    dsn: str, conn: psycopg.Connection
) -> None:
    insert(conn, destination="bank", ordering_key="k", done_at="1999-01-01Z", **DEAD)
    insert(conn, destination="bank", **DEAD)
    number = block(conn, "a", 2)
    found = as_json(dsn)
    assert found["blocking"] == {"mail": [number]}
    assert found["destinations"]["mail"]["blocked_lanes"] == 1
    assert 7_500 <= found["destinations"]["mail"]["oldest_blocked_age"] < 8_000
    assert found["destinations"]["bank"]["blocked_lanes"] == 0


def test_a_role_that_may_not_read_messages_still_learns_that_lanes_are_blocked(
    dsn: str, conn: psycopg.Connection
) -> None:
    block(conn, "a", 2)
    with login_role(dsn, "EXECUTE ON FUNCTION outbox_stats(integer)") as role:
        assert as_json(role.dsn)["blocking"] is None
        assert (
            f"1 lane of mail is blocked by a dead message, for 2h05m: {ADVICE}"
            in status(role.dsn).splitlines()
        )
