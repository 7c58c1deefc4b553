"""Settings of an exporter that watches several databases."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from pgoutbox.cli.connect import settings_for_watching
from pgoutbox.settings import SettingsError, load_settings

if TYPE_CHECKING:
    from pathlib import Path

LOCAL = {"PGOUTBOX_DSN": "host=/run/postgresql dbname=shop"}
SHOP = {"PGOUTBOX_DATABASES__SHOP__DSN": "host=/run/postgresql dbname=shop"}
STOCK = {"PGOUTBOX_DATABASES__STOCK__DSN": "host=/run/postgresql dbname=stock"}
SENSITIVE = "geheim-47"


def refused(environ: dict[str, str]) -> list[str]:
    with pytest.raises(SettingsError) as caught:
        load_settings(environ, need_database=False)
    return [str(problem) for problem in caught.value.problems]


def test_databases_come_from_the_environment_and_from_the_file(tmp_path: Path) -> None:
    file, secret = tmp_path / "pgoutbox.toml", tmp_path / "dsn"
    secret.write_text("host=/run/postgresql dbname=secret\n")
    file.write_text(f'[databases.back_office]\ndsn_file = "{secret}"\nschema = "events"\n')
    settings = load_settings(SHOP | {"PGOUTBOX_CONFIG": str(file)}, need_database=False)
    found = {name: (each.read_dsn(), each.schema_name) for name, each in settings.databases.items()}
    assert found == {
        "back_office": ("host=/run/postgresql dbname=secret", "events"),
        "shop": (SHOP["PGOUTBOX_DATABASES__SHOP__DSN"], None),
    }
    secret.write_text("host=/run/postgresql dbname=rotated\n")
    assert settings.databases["back_office"].read_dsn().endswith("rotated")


def test_a_dsn_in_the_environment_replaces_a_file_named_below(tmp_path: Path) -> None:
    file = tmp_path / "pgoutbox.toml"
    file.write_text('[databases.shop]\ndsn_file = "/nowhere"\n')
    settings = load_settings(SHOP | {"PGOUTBOX_CONFIG": str(file)}, need_database=False)
    assert settings.databases["shop"].read_dsn() == SHOP["PGOUTBOX_DATABASES__SHOP__DSN"]


def test_everything_that_is_wrong_with_databases_is_told_at_once_and_without_secrets() -> None:
    remote = f"postgresql://outbox:{SENSITIVE}@db.example/shop"
    found = refused(
        {
            "PGOUTBOX_DATABASES__SHOP__DSN": remote,
            "PGOUTBOX_DATABASES__STOCK__SCHEMA": "no schema",
            "PGOUTBOX_DATABASES__MAIL__DSNN": remote,
            "PGOUTBOX_DATABASES__0__DSN": "host=/run/postgresql",
            "PGOUTBOX_DATABASES__BANK__DSN_FILE": "/nowhere",
        }
    )
    told = "\n".join(found)
    assert "PGOUTBOX_DATABASES__SHOP__DSN has no sslmode" in told
    assert "PGOUTBOX_DATABASES__STOCK__DSN is required. Set it, or" in told
    assert "PGOUTBOX_DATABASES__STOCK__DSN_FILE" in told
    assert "PGOUTBOX_DATABASES__STOCK__SCHEMA" in told
    assert "Did you mean PGOUTBOX_DATABASES__MAIL__DSN?" in told
    assert "PGOUTBOX_DATABASES__0 is no name for a database" in told
    assert "PGOUTBOX_DATABASES__BANK__DSN_FILE names a file that cannot be read" in told
    assert SENSITIVE not in told


def databases(**dsns: str) -> dict[str, str]:
    return {f"PGOUTBOX_DATABASES__{name.upper()}__DSN": dsn for name, dsn in dsns.items()}


@pytest.mark.parametrize(
    "other",
    [
        "host=/run/postgresql dbname=shop",
        "host=/run/postgresql dbname=shop port=5432 user=other application_name=x",
        "host=/run/postgresql user=shop",
        "postgresql:///shop?host=/run/postgresql",
    ],
)
def test_an_outbox_under_two_names_is_refused_with_both(other: str) -> None:
    [problem] = refused(SHOP | STOCK | databases(other=other))
    assert "leads to the same outbox as" in problem
    assert "PGOUTBOX_DATABASES__SHOP__DSN" in problem
    assert "PGOUTBOX_DATABASES__OTHER__DSN" in problem


@pytest.mark.parametrize(
    "other",
    [
        "host=/run/postgresql dbname=stock",
        "host=/run/postgresql dbname=shop port=5433",
        "host=/var/postgresql dbname=shop",
    ],
)
def test_another_server_or_another_database_is_another_outbox(other: str) -> None:
    assert len(load_settings(SHOP | databases(b=other), need_database=False).databases) == 2


def test_two_schemas_of_one_database_are_two_outboxes() -> None:
    both = SHOP | databases(b=SHOP["PGOUTBOX_DATABASES__SHOP__DSN"])
    events = both | {"PGOUTBOX_DATABASES__B__SCHEMA": "events"}
    assert len(load_settings(events, need_database=False).databases) == 2
    assert len(refused(events | {"PGOUTBOX_DATABASE__SCHEMA": "events"})) == 1


def test_what_is_wrong_anyway_is_not_called_the_same_outbox() -> None:
    missing = {f"PGOUTBOX_DATABASES__{name}__SCHEMA": "events" for name in "AB"}
    malformed = databases(c="host", d="host")
    schemas = SHOP | databases(e=SHOP["PGOUTBOX_DATABASES__SHOP__DSN"])
    found = refused(missing | malformed | schemas | {"PGOUTBOX_DATABASES__E__SCHEMA": "no schema"})
    assert len(found) == 5
    assert not any("same outbox" in problem for problem in found)


def test_a_dsn_and_its_file_are_one_value() -> None:
    both = SHOP | {"PGOUTBOX_DATABASES__SHOP__DSN_FILE": "/nowhere"}
    assert any("are both given" in problem for problem in refused(both))


def test_an_unknown_key_in_the_file_is_told_with_the_nearest(tmp_path: Path) -> None:
    file = tmp_path / "pgoutbox.toml"
    file.write_text('[databases.shop]\ndsn = "host=/run/postgresql"\nshema = "x"\n')
    [problem] = refused({"PGOUTBOX_CONFIG": str(file)})
    assert "Did you mean PGOUTBOX_DATABASES__SHOP__SCHEMA?" in problem


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ('[database.shop]\ndsn = "host=/run/postgresql"', "[databases.shop]"),
        ('[database.schem]\ndsn = "host=/run/postgresql"', "[databases.schem]"),
        ('[datbases.shop]\ndsn = "host=/run/postgresql"', "[databases.shop]"),
        ('[destination.mail]\nurl = "noop://"', "[destinations.mail]"),
        ('[destination]\nurl = "noop://"', "[destinations.default]"),
        ('[databse]\nschema = "events"', "[database]"),
        ('[database]\nshema = "events"', "PGOUTBOX_DATABASE__SCHEMA"),
    ],
)
def test_a_table_that_is_no_setting_is_told_with_the_nearest_table(
    text: str, meant: str, tmp_path: Path
) -> None:
    file = tmp_path / "pgoutbox.toml"
    file.write_text(text)
    [problem] = refused({"PGOUTBOX_CONFIG": str(file)})
    assert f"Did you mean {meant}?" in problem


def test_a_variable_that_lacks_the_s_is_told_with_its_own_name() -> None:
    [problem] = refused({"PGOUTBOX_DATABASE__SHOP__DSN_FILE": "/nowhere"})
    assert "Did you mean PGOUTBOX_DATABASES__SHOP__DSN_FILE?" in problem


def test_a_worker_does_not_mind_them() -> None:
    settings = load_settings(LOCAL | SHOP, to="noop://", need_destination=True)
    assert settings.read_dsn() == LOCAL["PGOUTBOX_DSN"]


def test_an_exporter_with_databases_needs_no_other_one(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (SHOP | STOCK).items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("PGOUTBOX_DSN", raising=False)
    assert set(settings_for_watching(None, None).databases) == {"shop", "stock"}


def test_an_exporter_that_is_told_a_dsn_watches_only_that(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (SHOP | STOCK).items():
        monkeypatch.setenv(name, value)
    settings = settings_for_watching(LOCAL["PGOUTBOX_DSN"], None)
    assert (settings.read_dsn(), settings.databases) == (LOCAL["PGOUTBOX_DSN"], {})


def test_an_exporter_without_any_is_told_what_to_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PGOUTBOX_DSN", raising=False)
    with pytest.raises(SettingsError, match="PGOUTBOX_DSN is required"):
        settings_for_watching(None, None)
