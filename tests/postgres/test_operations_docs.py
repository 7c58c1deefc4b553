"""What docs/operations.md tells an operator to run does what it says."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner
from psycopg import errors

from pgoutbox.cli.main import group
from tests.support.outbox_rows import insert
from tests.support.roles import login_role
from tests.support.workers import WorkerProcess

if TYPE_CHECKING:
    import psycopg
    from click.testing import Result

PAGE = Path(__file__).parents[2] / "docs" / "operations.md"
SQL = re.compile(r"^```sql\n(.*?)^```", re.DOTALL | re.MULTILINE)
DEAD = {
    "status": "dead",
    "pending_since": None,
    "attempts": 12,
    "reclaims": 1,
    "lease_version": 12,
    "last_error": "answered 410, then 503",
}


def section(title: str) -> str:
    """The last block of SQL below this heading."""
    return blocks(title)[-1]


def blocks(title: str) -> list[str]:
    text = PAGE.read_text(encoding="utf-8").split(f"## {title}\n")[1].split("\n## ")[0]
    return [str(block) for block in SQL.findall(text)]


def pgoutbox(dsn: str, *words: str) -> Result:
    environ = {"PGOUTBOX_DSN": dsn, "PGOUTBOX_DATABASE__INSECURE": "true"}
    return CliRunner().invoke(group, words, env=environ, catch_exceptions=False)


def documented_commands() -> list[list[str]]:
    """The commands about dead letters, each as its words."""
    text = PAGE.read_text(encoding="utf-8").split("## Dead letters\n")[1].split("\n## ")[0]
    lines = [
        line for line in text.splitlines() if line.startswith(("pgoutbox dead", "pgoutbox show"))
    ]
    return [shlex.split(line)[1:] for line in lines]


LOGINS = {"worker": "shop_workers", "monitor": "shop_monitor", "desk": "alice"}


def grants(**roles: str) -> bytes:
    """What the page grants to the logins, to others instead."""
    statements = [one.strip() for one in section("Roles").split(";") if "GRANT" in one]
    chosen = []
    for name, role in roles.items():
        ending = f" TO {LOGINS[name]}"
        [found] = [one for one in statements if one.endswith(ending)]
        chosen.append(found.removesuffix(ending) + f" TO {role}")
    return ";\n".join(chosen).encode()


def test_the_documented_rights_suffice_for_a_worker_and_for_monitoring(
    dsn: str, conn: psycopg.Connection
) -> None:
    insert(conn)
    with login_role(dsn) as worker, login_role(dsn) as monitor:
        conn.execute(grants(worker=worker.name, monitor=monitor.name))
        words = ["check", "--to", "noop://", "--json"]
        checked = json.loads(pgoutbox(worker.dsn, *words).stdout)
        assert (checked["ok"], checked["problems"]) == (True, [])
        with WorkerProcess(worker.dsn, "noop://", DATABASE__INSECURE="true").started() as process:
            process.wait_for("delivered")
            assert process.stop().code == 0
            assert not process.events("database failed")
            assert process.events("drain ended")[0]["published"] == 1
        told = pgoutbox(monitor.dsn, "status")
        assert told.exit_code == 0, told.stderr
        assert "nothing is waiting" in told.stdout


def test_the_documented_rights_of_monitoring_show_no_message(
    dsn: str, conn: psycopg.Connection
) -> None:
    with login_role(dsn) as monitor:
        conn.execute(grants(monitor=monitor.name))
        conn.execute(f"SET ROLE {monitor.name}".encode())
        with pytest.raises(errors.InsufficientPrivilege):
            conn.execute("SELECT FROM outbox")
        conn.execute("RESET ROLE")


def test_the_documented_rights_suffice_to_decide_about_dead_letters_as_it_is_documented(
    dsn: str, conn: psycopg.Connection
) -> None:
    done = []
    with login_role(dsn) as person:
        conn.execute(grants(desk=person.name))
        for group_name, *rest in documented_commands():
            number = insert(conn, ordering_key="k", **DEAD)
            assert pgoutbox(person.dsn, "status").exit_code == 0
            words = [str(number) if word == "42" else word for word in rest]
            result = pgoutbox(person.dsn, group_name, *words)
            assert result.exit_code == 0, result.stderr
            done.append(words[0])
            conn.execute("DELETE FROM outbox")
        conn.execute(f"SET ROLE {person.name}".encode())
        noted = conn.execute(section("Dead letters").encode()).fetchall()
        with pytest.raises(errors.InsufficientPrivilege):
            conn.execute("UPDATE outbox SET payload = '{}'")
        conn.execute("RESET ROLE")
    assert {"list", "requeue", "skip", "discard"} <= set(done)
    assert [(user, action) for _, user, action, *_ in noted] == [
        (person.name, action) for action in ("discard", "skip", "requeue", "requeue")
    ]
