from __future__ import annotations

import json
import uuid
from typing import TYPE_CHECKING, Any

import psycopg
import pytest
from click.testing import CliRunner
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg.types.json import Jsonb

from pgoutbox.cli.main import group
from pgoutbox.cli.status import look
from pgoutbox.cli.status_view import _backlog, _draw, _workers, duration
from pgoutbox.database.migrate import apply
from tests.support.outbox_rows import fill, insert, insert_into
from tests.support.roles import login_role

if TYPE_CHECKING:
    from click.testing import Result

DEAD = {"status": "dead", "pending_since": None}


def status(dsn: str, *arguments: str) -> Result:
    env = {"PGOUTBOX_DSN": dsn, "PGOUTBOX_DSN_FILE": None, "PGOUTBOX_DATABASE__SCHEMA": None}
    return CliRunner().invoke(group, ["status", *arguments], env=env, catch_exceptions=False)


def as_json(dsn: str) -> dict[str, Any]:
    answer = status(dsn, "--json")
    assert answer.exit_code == 0, answer.output
    found: dict[str, Any] = json.loads(answer.stdout.splitlines()[-1])
    return found


def heartbeat(conn: psycopg.Connection, owner: str, *destinations: str, **columns: object) -> None:
    """A worker that was seen just now."""
    values: dict[str, object] = {
        "incarnation": uuid.uuid4(),
        "owner": owner,
        "version": "1.2.3",
        "state": "running",
        "slots": 200,
        "busy": 7,
        "destinations": Jsonb({name: {"breaker": "closed"} for name in destinations}),
    }
    insert_into(conn, "outbox_workers", **values | columns)


def test_an_empty_outbox_says_so(dsn: str) -> None:
    answer = status(dsn)
    assert answer.exit_code == 0
    assert answer.stdout.splitlines() == [
        'nothing is waiting in schema "public", and nothing is dead',
        "no worker is running (one that stopped properly leaves no trace)",
    ]


def test_people_see_counts_ages_attempts_and_workers(dsn: str, conn: psycopg.Connection) -> None:
    insert(conn, destination="bank", attempts=3)
    insert(conn, destination="bank", **DEAD)
    conn.execute(
        "UPDATE outbox SET pending_since = now() - interval '2 hours 5 minutes' WHERE id = 1"
    )
    heartbeat(conn, "pod-1", "bank")
    lines = [line.split() for line in status(dsn).stdout.splitlines()]
    backlog = next(line for line in lines if line[:1] == ["bank"])
    assert backlog[1:7] == ["1", "0", "0", "0", "1", "2h05m"]
    assert ["destination", "3"] in lines
    assert ["bank", "1"] in lines
    worker = next(line for line in lines if line[:1] == ["pod-1"])
    assert worker[:5] == ["pod-1", "running", "7", "of", "200"]
    assert worker[-2:] == ["1.2.3", "bank"]


def test_a_count_that_reaches_the_cap_is_shown_as_at_least(
    dsn: str, conn: psycopg.Connection
) -> None:
    fill(conn, 10_001)
    assert "10000+" in status(dsn).stdout


def test_json_is_one_object_on_the_last_line(dsn: str, conn: psycopg.Connection) -> None:
    insert(conn, destination="bank", attempts=2)
    insert(conn, destination="mail", ordering_key="k", **DEAD)
    heartbeat(conn, "pod-1", "bank")
    found = as_json(dsn)
    assert set(found) == {
        *("schema", "at", "cap", "destinations", "workers", "attempts", "unserved", "horizon"),
        *("blocking", "newest_dead", "table"),
    }
    assert found["destinations"]["bank"]["ready"] == 1
    assert found["destinations"]["mail"]["blocked_lanes"] == 1
    assert found["attempts"] == {"bank": {"2": 1}, "mail": {}}
    assert [worker["owner"] for worker in found["workers"]] == ["pod-1"]
    assert found["unserved"] == []
    assert found["table"].keys() == {"live", "dead", "vacuumed_at"}


def test_a_destination_that_no_live_worker_names_is_unserved(
    dsn: str, conn: psycopg.Connection
) -> None:
    insert(conn, destination="bank")
    insert(conn, destination="mail")
    insert(conn, destination="attic", **DEAD)
    heartbeat(conn, "pod-1", "bank")
    heartbeat(conn, "pod-2", "mail", seen_at="1999-01-01Z")
    heartbeat(conn, "pod-3", "mail", state="draining")
    assert as_json(dsn)["unserved"] == ["mail"]
    assert "no worker serves mail: 1 undelivered" in status(dsn).stdout


def test_without_any_worker_everything_that_waits_is_unserved(
    dsn: str, conn: psycopg.Connection
) -> None:
    insert(conn, destination="bank")
    assert as_json(dsn)["unserved"] == ["bank"]


def test_nothing_is_called_unserved_while_a_live_worker_names_no_destinations(
    dsn: str, conn: psycopg.Connection
) -> None:
    insert(conn, destination="bank")
    heartbeat(conn, "pod-1")
    assert as_json(dsn)["unserved"] == []


def test_a_role_that_may_only_call_outbox_stats_sees_all_but_the_attempts(
    dsn: str, conn: psycopg.Connection
) -> None:
    insert(conn)
    with login_role(dsn, "EXECUTE ON FUNCTION outbox_stats(integer)") as role:
        assert as_json(role.dsn)["attempts"] is None
        assert "attempts are not shown" in status(role.dsn).stdout


def test_the_newest_dead_messages_are_named_unless_all_of_them_block(
    dsn: str, conn: psycopg.Connection
) -> None:
    head = insert(conn, destination="bank", ordering_key="k", **DEAD)
    numbers = [insert(conn, destination="mail", **DEAD) for _ in range(4)]
    one = insert(conn, destination="shop", **DEAD)
    newest = ", ".join(map(str, numbers[:0:-1]))
    told = [line for line in status(dsn).stdout.splitlines() if " dead (" in line]
    assert [line.partition(": repair")[0] for line in told] == [
        f"4 messages of mail are dead (the newest: {newest}, ...)",
        f"1 message of shop is dead ({one})",
    ]
    assert all("`pgoutbox dead requeue` it" in line for line in told)
    assert as_json(dsn)["newest_dead"] == {"bank": [head], "mail": numbers[:0:-1], "shop": [one]}


def test_a_database_without_the_outbox_is_told_to_migrate(empty_dsn: str) -> None:
    refused = status(empty_dsn, "--schema", "app")
    assert refused.exit_code == 1
    assert refused.stderr == (
        'pgoutbox: there is no outbox in schema "app" of this database: run `pgoutbox migrate`\n'
    )


def test_a_terminal_gets_a_table_and_names_are_never_taken_for_markup(
    conn: psycopg.Connection, capsys: pytest.CaptureFixture[str]
) -> None:
    heartbeat(conn, "[red]pod-1[/red]", "bank")
    _draw([_workers(look(conn, schema="public").statistics)])
    assert "[red]pod-1[/red]" in capsys.readouterr().out


@pytest.mark.parametrize("columns", [80, 120])
def test_a_narrow_terminal_gets_one_block_per_destination_and_no_cell_is_cut(
    conn: psycopg.Connection,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    columns: int,
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    insert(conn, destination="a_destination_name")
    _draw([_backlog(look(conn, schema="public").statistics)])
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= columns
    if columns == 80:
        assert "  destination       a_destination_name" in lines
        assert "  of which expired  0" in lines
    else:
        assert "a_destination_name" in lines[4]
        assert "of which expired" in lines[2]


def test_expired_leases_are_shown_as_a_part_of_the_leased(
    dsn: str, conn: psycopg.Connection
) -> None:
    lease = {"status": "processing", "lease_owner": "pod-1"}
    insert(conn, destination="bank", lease_until="1999-01-01Z", **lease)
    insert(conn, destination="bank", lease_until="2999-01-01Z", **lease)
    lines = status(dsn).stdout.splitlines()
    assert "leased  of which expired" in lines[1]
    assert lines[2].split()[1:6] == ["0", "0", "2", "1", "0"]


def test_a_worker_that_missed_its_heartbeat_is_called_silent(
    dsn: str, conn: psycopg.Connection
) -> None:
    heartbeat(conn, "pod-1", "bank")
    heartbeat(conn, "pod-2", "bank")
    conn.execute(
        "UPDATE outbox_workers SET seen_at = now() - interval '16 s' WHERE owner = 'pod-2'"
    )
    lines = [line.split() for line in status(dsn).stdout.splitlines()]
    states = {line[0]: line[1] for line in lines if line and line[0].startswith("pod-")}
    assert states == {"pod-1": "running", "pod-2": "silent"}


def test_a_role_without_the_right_to_look_is_told_which_grants_to_ask_for(
    dsn: str, conn: psycopg.Connection
) -> None:
    with login_role(dsn) as role:
        grant = f'GRANT EXECUTE ON FUNCTION "public".outbox_stats(integer) TO "{role.name}"'
        refused = status(role.dsn)
        assert refused.exit_code == 1
        assert refused.stderr.endswith(f"ask the owner for {grant}\n")
        conn.execute(grant.encode())
        assert status(role.dsn).exit_code == 0


def test_a_role_that_may_not_enter_the_schema_is_told_so(empty_dsn: str) -> None:
    with psycopg.connect(empty_dsn, autocommit=True) as owner, login_role(empty_dsn) as role:
        apply(owner, schema="Events")
        refused = status(role.dsn, "--schema", "Events")
        asked = refused.stderr.strip().partition("ask the owner for ")[2].split(" and ")
        assert len(asked) == 2
        for grant in asked:
            owner.execute(grant.encode())
        assert status(role.dsn, "--schema", "Events").exit_code == 0


def test_looking_leaves_no_transaction_open(conn: psycopg.Connection) -> None:
    look(conn, schema="public")
    assert conn.execute("SHOW transaction_read_only").fetchone() == ("off",)


def test_the_password_is_not_shown_when_the_server_cannot_be_reached(dsn: str) -> None:
    parts = conninfo_to_dict(dsn) | {"port": "1", "password": "hunter2"}
    refused = status(make_conninfo("", **parts))
    assert refused.exit_code == 1
    assert "hunter2" not in refused.output


@pytest.mark.parametrize(
    ("seconds", "said"),
    [
        (0, "0.0s"),
        (59.94, "59.9s"),
        (60, "1m00s"),
        (126.9, "2m06s"),
        (3_599.9, "59m59s"),
        (7_500, "2h05m"),
        (90_000, "1d01h"),
        (200 * 86_400, "200d00h"),
    ],
)
def test_durations_are_said_in_two_units(seconds: float, said: str) -> None:
    assert duration(seconds) == said
