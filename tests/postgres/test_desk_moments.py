"""Between which moments the letters died that a long decision is about."""

from __future__ import annotations

from typing import TYPE_CHECKING

import psycopg
import pytest

from pgoutbox.database import letters
from pgoutbox.database.letters import Counted, Selection
from tests.support.outbox_rows import insert

if TYPE_CHECKING:
    from pgoutbox.database.desk_writes import Action

SCHEMA = "public"
ACTION: Action = "requeue"


def counted(conn: psycopg.Connection, **asked: str) -> Counted:
    return letters.count(conn, Selection(**asked), schema=SCHEMA, action=ACTION)


def test_ages_become_moments_so_that_time_changes_nothing_about_what_was_confirmed() -> None:
    asked = Selection(destination="mail", newer_than="1 hour", older_than="1 minute")
    fixed = asked.fixed(Counted(letters=1, at="then", since="before"))
    assert fixed == Selection(destination="mail", died_after="before", died_before="then")


def test_the_moments_are_those_of_the_ages(conn: psycopg.Connection) -> None:
    found = counted(conn, newer_than="1 hour", older_than="5 minutes")
    between = "SELECT (%s::timestamptz - %s::timestamptz)::text, %s::timestamptz < now()"
    assert conn.execute(between, [found.at, found.since, found.at]).fetchone() == ("00:55:00", True)


def test_a_moment_that_is_nearer_than_an_age_counts(conn: psycopg.Connection) -> None:
    found = counted(
        conn, newer_than="2 h", died_after="2020-01-01Z", older_than="1h", died_before="2021-01-01Z"
    )
    (at,) = conn.execute("SELECT '2021-01-01Z'::timestamptz::text").fetchone() or ()
    assert found.at == at
    assert found.since is not None
    assert found.since > at


@pytest.mark.parametrize("style", ["SQL, DMY", "Postgres, MDY", "German"])
def test_a_moment_means_the_same_to_the_next_session_whatever_the_style_of_this_one(
    dsn: str, conn: psycopg.Connection, style: str
) -> None:
    number = insert(conn, status="dead", pending_since=None)
    # Elsewhere IST is two hours from UTC.
    with psycopg.connect(dsn, autocommit=True) as person:
        person.execute("SELECT set_config('datestyle', %s, false)", [style])
        person.execute("SET timezone = 'Asia/Kolkata'")
        at = counted(person).at
    [(passed,)] = conn.execute(
        "SELECT %s::timestamptz BETWEEN available_at AND now() FROM outbox WHERE id = %s",
        [at, number],
    ).fetchall()
    assert passed
