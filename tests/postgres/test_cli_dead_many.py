"""``pgoutbox dead`` about many: which letters are meant, and what becomes of them."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner

from pgoutbox.cli.main import group
from tests.support.outbox_rows import insert
from tests.support.roles import login_role

if TYPE_CHECKING:
    import psycopg
    from click.testing import Result

DEAD: dict[str, Any] = {"status": "dead", "pending_since": None, "attempts": 12}
REASON = ("--reason", "repaired")


def dead(dsn: str, *words: str, answer: str | None = None) -> Result:
    env = {"PGOUTBOX_DSN": dsn, "PGOUTBOX_DSN_FILE": None, "PGOUTBOX_DATABASE__SCHEMA": None}
    return CliRunner().invoke(
        group, ["dead", *words], env=env, input=answer, catch_exceptions=False
    )


def letters(conn: psycopg.Connection) -> dict[str, int]:
    """Dead ones that differ in what a condition may ask for, by a name."""
    return {
        "mail": insert(conn, **DEAD, destination="mail", last_error="410 Gone"),
        "percent": insert(conn, **DEAD, last_error="100% of it_is wrong"),
        "typed": insert(conn, **DEAD, event_type="OrderLost", last_error="GONE for good"),
        "old": insert(conn, **DEAD, available_at="2020-01-01Z"),
        "head": insert(conn, **DEAD, ordering_key="k", last_error="no"),
    }


def status(conn: psycopg.Connection) -> dict[int, str]:
    return dict(conn.execute("SELECT id, status FROM outbox").fetchall())


@pytest.mark.parametrize(
    ("words", "meant"),
    [
        (["--all"], {"mail", "percent", "typed", "old", "head"}),
        (["--destination", "mail"], {"mail"}),
        (["--type", "OrderLost"], {"typed"}),
        (["--error", "gone"], {"mail", "typed"}),
        (["--error", "0% OF it_"], {"percent"}),
        (["--error", "%"], {"percent"}),
        (["--older-than", "3d"], {"old"}),
        (["--newer-than", "1 week"], {"mail", "percent", "typed", "head"}),
        (["--died-before", "2021-01-01Z", "--all"], {"old"}),
        (["--died-after", "2021-01-01Z"], {"mail", "percent", "typed", "head"}),
        (["--died-after", "2019-01-01Z", "--died-before", "2021-01-01Z"], {"old"}),
        (["--error", "gone", "--destination", "default"], {"typed"}),
    ],
)
def test_all_that_fit_every_condition_are_requeued_and_no_other(
    dsn: str, conn: psycopg.Connection, words: list[str], meant: set[str]
) -> None:
    known = letters(conn)
    result = dead(dsn, "requeue", *words, *REASON, "--yes")
    assert result.exit_code == 0, result.stderr
    assert result.stdout.startswith(f"{len(meant)} dead message")
    now = status(conn)
    assert {name for name, number in known.items() if now[number] == "pending"} == meant
    audited = conn.execute("SELECT outbox_id, action, reason FROM outbox_audit").fetchall()
    assert sorted(audited) == sorted((known[name], "requeue", "repaired") for name in meant)


@pytest.mark.parametrize("words", [["--all"], ["--destination", "default"]])
def test_the_list_shows_what_the_same_conditions_would_choose(
    dsn: str, conn: psycopg.Connection, words: list[str]
) -> None:
    known = letters(conn)
    told = dead(dsn, "list", *[word for word in words if word != "--all"], "--json")
    listed = json.loads(told.stdout)
    counted = json.loads(dead(dsn, "requeue", *words, *REASON, "--dry-run", "--json").stdout)
    assert counted["would_do"] == listed["count"] == len(listed["letters"])
    assert {one["id"] for one in listed["letters"]} <= set(known.values())


def test_the_list_says_why_they_died_which_block_and_how_many_more_there_are(
    dsn: str, conn: psycopg.Connection
) -> None:
    known = letters(conn)
    result = dead(dsn, "list", "--destination", "default", "--limit", "4")
    assert result.exit_code == 0
    assert "100% of it_is wrong" in result.stdout
    assert f"{known['mail']}" not in result.stdout.split()
    assert "k*" in result.stdout
    assert "* blocks the messages behind it" in result.stdout
    assert "more" not in result.stdout
    assert "3 more" in dead(dsn, "list", "--limit", "2").stdout


def test_a_list_of_nothing_says_so(dsn: str) -> None:
    result = dead(dsn, "list")
    assert (result.exit_code, result.stdout) == (0, 'no dead message fits in schema "public"\n')


@pytest.mark.parametrize("verb", ["requeue", "skip", "discard"])
def test_a_dry_run_changes_nothing_and_shows_a_sample(
    dsn: str, conn: psycopg.Connection, verb: str
) -> None:
    known = letters(conn)
    before = conn.execute("SELECT * FROM outbox ORDER BY id").fetchall()
    result = dead(dsn, verb, "--all", *REASON, "--dry-run")
    assert result.exit_code == 0
    assert "nothing was changed" in result.stdout
    assert str(known["head"]) in result.stdout
    assert conn.execute("SELECT * FROM outbox ORDER BY id").fetchall() == before
    assert conn.execute("SELECT count(*) FROM outbox_audit").fetchone() == (0,)


def test_nothing_is_done_about_many_before_somebody_says_yes(
    dsn: str, conn: psycopg.Connection
) -> None:
    letters(conn)
    result = dead(dsn, "discard", "--all", *REASON)
    assert result.exit_code == 2
    assert "5 dead messages: say --yes, or look first with --dry-run" in result.stderr
    assert set(status(conn).values()) == {"dead"}


def test_skipping_is_about_those_that_block_alone(dsn: str, conn: psycopg.Connection) -> None:
    known = letters(conn)
    behind = insert(conn, ordering_key="k")
    result = dead(dsn, "skip", "--all", *REASON, "--yes", "--json")
    told = json.loads(result.stdout)
    assert (told["done"], told["left"]) == (1, 0)
    assert status(conn)[known["head"]] == "dead"
    assert conn.execute(
        "SELECT id FROM outbox WHERE ordering_key = 'k' AND done_at IS NULL"
    ).fetchall() == [(behind,)]
    assert dead(dsn, "skip", "--all", *REASON, "--yes").exit_code == 1


def test_what_is_discarded_is_gone_its_lane_goes_on_and_the_audit_knows_what_it_was_about(
    dsn: str, conn: psycopg.Connection
) -> None:
    known = letters(conn)
    behind = insert(conn, ordering_key="k", available_at="2020-01-01Z")
    with login_role(dsn, "outbox_desk") as person:
        result = dead(person.dsn, "discard", "--destination", "default", *REASON, "--yes")
        assert result.exit_code == 0, result.stderr
    assert set(status(conn)) == {known["mail"], behind}
    audit = conn.execute("SELECT outbox_id, db_user, details FROM outbox_audit").fetchall()
    assert {number for number, *_ in audit} == set(known.values()) - {known["mail"]}
    assert {user for _, user, _ in audit} == {person.name}
    about = next(details for number, _, details in audit if number == known["head"])
    assert (about["aggregate_type"], about["aggregate_id"]) == ("order", "o-1")
    assert (about["event_type"], about["last_error"]) == ("order_paid", "no")
    # As if it had just become due: workers find it at once.
    assert conn.execute(
        "SELECT available_at > now() - interval '1 minute' FROM outbox WHERE id = %s", [behind]
    ).fetchone() == (True,)


def test_what_lanes_went_on_without_is_delivered_out_of_order_and_counted(
    dsn: str, conn: psycopg.Connection
) -> None:
    insert(conn, **DEAD, ordering_key="k", done_at="2020-01-01Z")
    insert(conn, **DEAD, ordering_key="other")
    told = json.loads(dead(dsn, "requeue", "--all", *REASON, "--yes", "--json").stdout)
    assert (told["done"], told["out_of_order"]) == (2, 1)
    keys = conn.execute("SELECT ordering_key, done_at FROM outbox ORDER BY id").fetchall()
    assert keys == [(None, None), ("other", None)]


def test_a_limit_leaves_the_rest(dsn: str, conn: psycopg.Connection) -> None:
    letters(conn)
    words = ("requeue", "--all", *REASON, "--yes", "--batch", "2", "--limit", "3")
    result = dead(dsn, *words)
    assert result.stdout.startswith("3 dead messages requeued")
    assert result.stdout.endswith("; 2 left\n")
    assert sorted(status(conn).values()) == ["dead"] * 2 + ["pending"] * 3


def test_nothing_that_fits_exits_with_1(dsn: str, conn: psycopg.Connection) -> None:
    insert(conn)
    result = dead(dsn, "requeue", "--destination", "mail", *REASON, "--yes")
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr == "pgoutbox: no dead message fits, and nothing was done\n"


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ([], "say which: IDs, a condition"),
        (["--died-before", "2021-01-01Z"], "say which: IDs, a condition"),
        (["7", "--all"], "exclude each other"),
        (["7", "--destination", "mail"], "exclude each other"),
        (["7", "--limit", "1"], "exclude each other"),
        (["--all", "--destination", "mail"], "exclude each other"),
        (["--destination", ""], "must not be empty"),
        (["--error", "a\x00b"], "NUL"),
        (["--older-than", "soon", "--yes"], "times are as in 90s, 30m, 2h, 3d"),
        (["--older-than", "999999999999d", "--yes"], "times are as in 90s, 30m, 2h, 3d"),
        (["--older-than=-2h", "--yes"], "must not be negative"),
        (["--newer-than", "2h ago", "--yes"], "must not be negative"),
        (["--died-before", "noon?", "--all", "--yes"], "moments as in '2026-01-31 12:00+00'"),
        (["--all", "--rate", "0"], "--rate"),
        (["--all", "--batch", "0"], "--batch"),
    ],
)
def test_what_makes_no_sense_is_refused_before_anything_is_done(
    dsn: str, conn: psycopg.Connection, words: list[str], told: str
) -> None:
    insert(conn, **DEAD)
    result = dead(dsn, "requeue", *words, *REASON)
    assert result.exit_code == 2
    assert told in result.stderr
    assert set(status(conn).values()) == {"dead"}


def test_several_ids_are_decided_about_one_by_one(dsn: str, conn: psycopg.Connection) -> None:
    first, second, alive = insert(conn, **DEAD), insert(conn, **DEAD), insert(conn)
    ids = [str(number) for number in (first, alive, second, first)]
    result = dead(dsn, "requeue", *ids, *REASON, "--json")
    assert result.exit_code == 1
    told = [json.loads(line) for line in result.stdout.splitlines()]
    assert [(one["id"], one["done"]) for one in told] == [
        (first, True),
        (alive, False),
        (second, True),
    ]


def test_a_dry_run_of_one_says_what_would_be_done(dsn: str, conn: psycopg.Connection) -> None:
    number = insert(conn, **DEAD)
    result = dead(dsn, "discard", str(number), *REASON, "--dry-run")
    assert result.exit_code == 0
    assert result.stdout == (
        f"nothing was changed; without --dry-run: message {number} to default is discarded\n"
    )
    assert status(conn) == {number: "dead"}
    assert conn.execute("SELECT count(*) FROM outbox_audit").fetchone() == (0,)


def test_on_an_outbox_that_was_not_migrated_it_says_what_to_do(
    dsn: str, conn: psycopg.Connection
) -> None:
    number = insert(conn, **DEAD)
    conn.execute("DROP FUNCTION outbox_discard")
    result = dead(dsn, "discard", str(number), *REASON)
    assert result.exit_code == 1
    assert "older than this command, and nothing was done: run `pgoutbox migrate`" in result.stderr
    assert status(conn) == {number: "dead"}
