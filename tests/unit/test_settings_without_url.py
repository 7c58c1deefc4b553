"""Settings of a destination whose URL only `pgoutbox run --to` is told."""

from __future__ import annotations

from typing import TYPE_CHECKING

import psycopg
import pytest
from click.testing import CliRunner

from pgoutbox.cli.main import group
from pgoutbox.settings import SettingsError, load_settings

if TYPE_CHECKING:
    from pathlib import Path

NOWHERE = {"PGOUTBOX_DSN": "host=127.0.0.1 port=1"}
SKIP = {"PGOUTBOX_DESTINATIONS__DEFAULT__DEAD_HEAD": "skip"}
MESSAGE = ("--aggregate-type", "a", "--aggregate-id", "1", "--event-type", "e", "--payload", "{}")


def refused(environ: dict[str, str], *, publishes: bool = False) -> list[str]:
    with pytest.raises(SettingsError) as caught:
        load_settings(environ, publishes=publishes)
    return [str(problem) for problem in caught.value.problems]


def test_who_publishes_needs_the_url_and_is_told_how_to_give_it() -> None:
    [problem] = refused(NOWHERE | SKIP, publishes=True)
    assert problem.startswith("PGOUTBOX_DESTINATIONS__DEFAULT__URL is required.")
    assert "--to URL" in problem


def test_only_the_default_destination_can_get_its_url_from_the_command_line() -> None:
    [problem] = refused(
        NOWHERE | {"PGOUTBOX_DESTINATIONS__MAIL__DEAD_HEAD": "skip"}, publishes=True
    )
    assert "--to" not in problem


def test_who_does_not_publish_needs_no_url(tmp_path: Path) -> None:
    file = tmp_path / "pgoutbox.toml"
    file.write_text('[destinations.mail]\nmax_attempts = 3\n[destinations.bank]\nurl = "noop://"\n')
    settings = load_settings(NOWHERE | SKIP | {"PGOUTBOX_CONFIG": str(file)}, publishes=False)
    assert list(settings.destinations) == ["bank"]


def test_all_else_that_is_wrong_with_such_a_destination_is_told() -> None:
    default = "PGOUTBOX_DESTINATIONS__DEFAULT__"
    found = refused(
        NOWHERE
        | {f"{default}DEAD_HEAD": "jump", f"{default}RETRY__CAP": "0.5", f"{default}ULR": "noop://"}
        | {"PGOUTBOX_LEASE__RENEW": "x"}
    )
    assert sorted(problem.split()[0] for problem in found) == [
        f"{default}DEAD_HEAD",
        f"{default}RETRY__CAP",
        f"{default}ULR",
        "PGOUTBOX_LEASE__RENEW",
    ]


@pytest.mark.parametrize(
    "words",
    [
        ("status",),
        ("dead", "skip", "1", "--reason", "r"),
        ("exporter", "--port", "0"),
        ("migrate",),
        ("migrate", "--check"),
        ("enqueue", *MESSAGE),
    ],
)
def test_commands_that_do_not_publish_go_on_to_the_database(
    words: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    # The exporter would wait for its database.
    monkeypatch.setattr("pgoutbox.worker.run_process", failing)
    monkeypatch.setattr("pgoutbox.telemetry.logs_setup.configure", lambda _form: None)
    result = CliRunner().invoke(group, words, env=NOWHERE | SKIP)
    assert result.exit_code == 1, result.output
    assert result.stderr.startswith("pgoutbox: the database: ")


def failing(_main: object) -> int:
    raise psycopg.OperationalError("it would be asked")


def test_printing_the_migrations_needs_no_url_either() -> None:
    result = CliRunner().invoke(group, ["migrate", "--sql"], env=NOWHERE | SKIP)
    assert result.exit_code == 0, result.output


def test_what_only_webhooks_have_is_not_held_against_a_destination_without_a_url() -> None:
    environ = {
        "PGOUTBOX_DSN": "host=/run/postgresql dbname=shop",
        "PGOUTBOX_DESTINATIONS__DEFAULT__SIGNING_SECRETS": "whsec_c2VjcmV0",
        "PGOUTBOX_DESTINATIONS__DEFAULT__ALLOWED_HOSTS": "a.example",
    }
    assert not load_settings(environ, publishes=False).destinations
