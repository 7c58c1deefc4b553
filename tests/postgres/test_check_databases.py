"""``pgoutbox check`` where an exporter watches several databases."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner

from pgoutbox.cli.main import group
from tests.support.roles import login_role

if TYPE_CHECKING:
    from pathlib import Path

NOWHERE = "host=127.0.0.1 port=1 user=app password=geheim-47"


@pytest.fixture(autouse=True)
def _no_dsn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PGOUTBOX_DSN", raising=False)
    monkeypatch.setenv("PGOUTBOX_DATABASE__INSECURE", "true")


def check(*arguments: str, **environ: str) -> tuple[int, dict[str, Any]]:
    given = {f"PGOUTBOX_{name}": value for name, value in environ.items()}
    result = CliRunner().invoke(group, ["check", "--json", *arguments], env=given)
    return result.exit_code, json.loads(result.stdout)


def told(said: dict[str, Any]) -> dict[str, str]:
    return {one["field"]: f"{one['rule']} {one['advice']}" for one in said["problems"]}


def test_each_database_is_asked_and_a_broken_one_hides_none(dsn: str, empty_dsn: str) -> None:
    code, said = check(
        DATABASES__SHOP__DSN=dsn,
        DATABASES__EMPTY__DSN=empty_dsn,
        DATABASES__GONE__DSN=NOWHERE,
        DATABASES__OTHER__DSN=dsn,
        DATABASES__OTHER__SCHEMA="events",
    )
    assert code == 1
    assert said["facts"]["databases"] == "empty, gone, other, shop"
    found = told(said)
    assert found.keys() == {
        f"PGOUTBOX_DATABASES__{name}__DSN" for name in ("EMPTY", "GONE", "OTHER")
    }
    assert 'no outbox in schema "public"' in found["PGOUTBOX_DATABASES__EMPTY__DSN"]
    assert "pgoutbox migrate" in found["PGOUTBOX_DATABASES__EMPTY__DSN"]
    assert 'no outbox in schema "events"' in found["PGOUTBOX_DATABASES__OTHER__DSN"]
    assert "connection failed" in found["PGOUTBOX_DATABASES__GONE__DSN"]
    assert "Check host, port" in found["PGOUTBOX_DATABASES__GONE__DSN"]
    assert "geheim-47" not in json.dumps(said)


def test_databases_that_can_all_be_watched_are_fine_without_another_one(dsn: str) -> None:
    code, said = check(DATABASES__SHOP__DSN=dsn)
    assert (code, said["problems"]) == (0, [])
    assert said["facts"]["databases"] == "shop"


def test_they_are_asked_besides_the_one_of_a_worker(dsn: str, empty_dsn: str) -> None:
    both = {"DSN": empty_dsn, "DATABASES__GONE__DSN": NOWHERE, "DATABASES__SHOP__DSN": dsn}
    code, said = check("--to", "noop://", **both)
    assert code == 1
    assert told(said).keys() == {"database", "PGOUTBOX_DATABASES__GONE__DSN"}
    assert "wakeup" in said["facts"]


def test_a_worker_needs_a_database_of_its_own(dsn: str) -> None:
    code, said = check("--to", "noop://", DATABASES__SHOP__DSN=dsn)
    assert code == 78
    assert told(said).keys() == {"PGOUTBOX_DSN"}


def test_a_role_that_may_not_watch_is_told_what_it_may_not(dsn: str) -> None:
    with login_role(dsn) as role:
        code, said = check(DATABASES__SHOP__DSN=role.dsn)
    assert code == 1
    assert "permission denied" in told(said)["PGOUTBOX_DATABASES__SHOP__DSN"]
    assert "GRANT outbox_operator" in told(said)["PGOUTBOX_DATABASES__SHOP__DSN"]


def test_the_key_in_the_file_is_named(empty_dsn: str, tmp_path: Path) -> None:
    file = tmp_path / "pgoutbox.toml"
    file.write_text(f'[databases.shop]\ndsn = "{empty_dsn}"\n')
    result = CliRunner().invoke(group, ["check"], env={"PGOUTBOX_CONFIG": str(file)})
    assert f"PGOUTBOX_DATABASES__SHOP__DSN (databases.shop.dsn in {file}) cannot" in result.stdout
