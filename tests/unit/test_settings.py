"""Reading settings: names, sources, defaults, and what is refused."""

from __future__ import annotations

import re
import socket
from pathlib import Path

import pytest
from pydantic import ValidationError

from pgoutbox.settings import Settings, SettingsError, load_settings, warnings
from pgoutbox.settings.table import main, page, settings_table

LOCAL = {"PGOUTBOX_DSN": "host=/run/postgresql dbname=shop"}
SENSITIVE = "geheim-47"


def problems(environ: dict[str, str], *, to: str | None = None) -> list[str]:
    with pytest.raises(SettingsError) as refused:
        load_settings(environ, to=to)
    return [str(problem) for problem in refused.value.problems]


def fields(environ: dict[str, str]) -> set[str]:
    with pytest.raises(SettingsError) as refused:
        load_settings(environ)
    return {problem.field for problem in refused.value.problems}


def toml(tmp_path: Path, text: str) -> dict[str, str]:
    path = tmp_path / "pgoutbox.toml"
    path.write_text(text)
    return {"PGOUTBOX_CONFIG": str(path)}


def test_a_dsn_and_a_url_are_enough() -> None:
    settings = load_settings(LOCAL, to="stdout://", need_destination=True)
    assert settings.read_dsn() == LOCAL["PGOUTBOX_DSN"]
    assert settings.read_listen_dsn() == LOCAL["PGOUTBOX_DSN"]
    assert list(settings.destinations) == ["default"]
    assert settings.destinations["default"].scheme == "stdout"
    assert not warnings(settings)


def test_the_defaults_are_the_documented_ones() -> None:
    settings = load_settings(LOCAL, to="amqp://broker.example/shop")
    assert settings.model_dump(exclude={"dsn", "owner", "destinations"}, by_alias=True) == {
        **dict.fromkeys(["dsn_file", "listen_dsn", "listen_dsn_file", "config"]),
        "max_in_flight": 200,
        "on_unclassified": "exit",
        "wakeup": {"mode": "auto", "max_interval": 1},
        "http": {"port": 8080},
        "log": {"format": "auto"},
        "database": {
            "schema": "public",
            "pool_max": 3,
            "pooler": "auto",
            "statement_timeout": 5,
            "insecure": False,
        },
        "lease": {"duration": 30, "renew": 10},
        "drain": {"grace": 30, "soft": 20},
        "retention": {"mode": "keep", "days": 7},
        "tracing": {"parent": "creation"},
        "desk": {"redact": ()},
        "databases": {},
    }
    assert settings.destinations["default"].model_dump(exclude={"url"}) == {
        "url_file": None,
        "topic": None,
        "format": "plain",
        "source": "/",
        "concurrency": 200,
        "rate": None,
        "publish_timeout": 10,
        "max_attempts": 12,
        "retry": {"base": 1, "cap": 300},
        "breaker": {"failures": 10, "pause": 0.5, "max_pause": 30},
        "defer_max_age": 86400,
        "dead_head": "block",
        "signing_secrets": None,
        "signing_secrets_file": None,
        "allowed_hosts": (),
    }


@pytest.mark.parametrize("policy", ["block", "skip"])
def test_a_dead_head_blocks_its_lane_or_is_skipped(policy: str) -> None:
    settings = load_settings(
        LOCAL | {"PGOUTBOX_DESTINATIONS__DEFAULT__DEAD_HEAD": policy}, to="noop://"
    )
    assert settings.destinations["default"].dead_head == policy


def test_the_environment_reaches_every_level_of_the_tree() -> None:
    settings = load_settings(
        LOCAL
        | {
            "PGOUTBOX_DATABASE__SCHEMA": "events",
            "PGOUTBOX_DATABASE__INSECURE": "true",
            "PGOUTBOX_DESTINATIONS__ORDERS_EU__URL": "https://example.com/hook",
            "PGOUTBOX_DESTINATIONS__ORDERS_EU__RETRY__CAP": "7.5",
            "PGOUTBOX_DESTINATIONS__A__B__URL": "noop://",
        }
    )
    assert settings.database.schema_name == "events"
    assert settings.database.insecure is True
    assert settings.destinations["orders_eu"].retry.cap == 7.5
    assert set(settings.destinations) == {"orders_eu", "a__b"}


def test_the_environment_wins_over_the_file_value_by_value(tmp_path: Path) -> None:
    config = toml(
        tmp_path, '[lease]\nduration = 60\nrenew = 15\n[destinations.a]\nurl = "noop://"\n'
    )
    settings = load_settings(LOCAL | config | {"PGOUTBOX_LEASE__RENEW": "20"})
    assert (settings.lease.duration, settings.lease.renew) == (60, 20)
    assert list(settings.destinations) == ["a"]


def test_what_the_caller_says_wins_over_both(tmp_path: Path) -> None:
    config = toml(tmp_path, "[http]\nport = 1\n")
    environ = LOCAL | config | {"PGOUTBOX_HTTP__PORT": "2", "PGOUTBOX_DSN_FILE": ""}
    settings = load_settings(environ, overrides={"http": {"port": 0}, "dsn": "host=localhost"})
    assert settings.http.port == 0
    assert settings.read_dsn() == "host=localhost"


def test_to_keeps_the_other_settings_of_the_default_destination() -> None:
    environ = LOCAL | {"PGOUTBOX_DESTINATIONS__DEFAULT__MAX_ATTEMPTS": "3"}
    settings = load_settings(environ, to="noop://")
    assert settings.destinations["default"].max_attempts == 3


def test_settings_cannot_be_changed_afterwards() -> None:
    settings = load_settings(LOCAL)
    with pytest.raises(ValidationError):
        settings.max_in_flight = 3
    with pytest.raises(ValidationError):
        settings.lease.renew = 3


def test_constructing_settings_reads_no_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PGOUTBOX_MAX_IN_FLIGHT", "7")
    settings = Settings.model_validate({"dsn": "host=localhost"})
    assert settings.max_in_flight == 200


def test_the_owner_is_the_pod_else_the_host_else_what_was_chosen() -> None:
    assert load_settings(LOCAL).owner == socket.gethostname()
    assert load_settings(LOCAL | {"POD_NAME": "outbox-7"}).owner == "outbox-7"
    chosen = {"POD_NAME": "outbox-7", "PGOUTBOX_OWNER": "me"}
    assert load_settings(LOCAL | chosen).owner == "me"


def test_a_concurrency_that_nobody_chose_never_exceeds_what_the_worker_holds() -> None:
    environ = LOCAL | {
        "PGOUTBOX_MAX_IN_FLIGHT": "20",
        "PGOUTBOX_DESTINATIONS__HOOK__URL": "https://example.com",
        "PGOUTBOX_DESTINATIONS__FREE__URL": "noop://",
        "PGOUTBOX_DESTINATIONS__SLOW__URL": "noop://",
        "PGOUTBOX_DESTINATIONS__SLOW__CONCURRENCY": "2",
    }
    destinations = load_settings(environ).destinations
    assert {name: one.concurrency for name, one in destinations.items()} == {
        "hook": 20,
        "free": 20,
        "slow": 2,
    }
    wide = load_settings(LOCAL, to="stdout://")
    assert wide.destinations["default"].concurrency == wide.max_in_flight


def test_a_destination_is_required_only_of_those_who_publish() -> None:
    assert load_settings(LOCAL).destinations == {}
    with pytest.raises(SettingsError, match="__URL is not set for any destination"):
        load_settings(LOCAL, need_destination=True)


def test_a_dsn_is_required() -> None:
    assert problems({})[0].startswith("PGOUTBOX_DSN is required. Set it, or PGOUTBOX_DSN_FILE")


def test_everything_that_is_wrong_is_told_at_once(tmp_path: Path) -> None:
    config = toml(tmp_path, '[lease]\nrenw = 3\n[destinations.a]\nurl = "carrier:pigeon"\n')
    environ = config | {
        "PGOUTBOX_DSN": "host=db.example",
        "PGOUTBOX_MAX_IN_FLIGHT": "many",
        "PGOUTBOX_WAKEUP__MODE": "shout",
        "PGOUTBOX_LEASE__RENEW": "29",
        "PGOUTBOX_DRAIN__SOFT": "28",
        "PGOUTBOX_DATABASE__SCHEMA": "a b",
        "PGOUTBOX_DESTINATIONS__B__CONCURRENCY": "3",
        "PGOUTBOX_LISTEN_DSN_FILE": str(tmp_path / "missing"),
        "PGOUTBOX_COLOUR": "red",
    }
    assert fields(environ) == {
        "PGOUTBOX_DSN",
        "PGOUTBOX_MAX_IN_FLIGHT",
        "PGOUTBOX_WAKEUP__MODE",
        "PGOUTBOX_LEASE__RENEW",
        "PGOUTBOX_LEASE__RENW",
        "PGOUTBOX_DRAIN__SOFT",
        "PGOUTBOX_DATABASE__SCHEMA",
        "PGOUTBOX_DESTINATIONS__A__URL",
        "PGOUTBOX_DESTINATIONS__B__URL",
        "PGOUTBOX_LISTEN_DSN_FILE",
        "PGOUTBOX_COLOUR",
    }


def test_a_rule_about_a_value_that_is_wrong_anyway_is_not_told() -> None:
    environ = LOCAL | {"PGOUTBOX_LEASE__DURATION": "short", "PGOUTBOX_LEASE__RENEW": "29"}
    assert fields(environ) == {"PGOUTBOX_LEASE__DURATION"}


@pytest.mark.parametrize("value", ["0", "-1", "nan", "inf", "soon"])
def test_a_time_is_a_positive_finite_number(value: str) -> None:
    [problem] = problems(LOCAL | {"PGOUTBOX_DATABASE__STATEMENT_TIMEOUT": value})
    assert problem.startswith("PGOUTBOX_DATABASE__STATEMENT_TIMEOUT must be")
    assert f"(it is {value})" in problem


def test_a_word_that_is_no_choice_is_answered_with_the_choices() -> None:
    [problem] = problems(LOCAL | {"PGOUTBOX_LOG__FORMAT": "xml"})
    assert problem == (
        "PGOUTBOX_LOG__FORMAT is not one of the choices (it is xml). Choose auto, console or json."
    )


def test_a_group_is_no_value(tmp_path: Path) -> None:
    [problem] = problems(LOCAL | toml(tmp_path, f'http = "{SENSITIVE}"\n'))
    assert "PGOUTBOX_HTTP (http in" in problem
    assert "is a group of settings" in problem
    assert SENSITIVE not in problem


@pytest.mark.parametrize(
    ("mistyped", "meant"),
    [
        ("PGOUTBOX_LEASE__RENWE", "PGOUTBOX_LEASE__RENEW"),
        ("PGOUTBOX_LEASE_RENEW", "PGOUTBOX_LEASE__RENEW"),
        ("PGOUTBOX_HTTP_PORT", "PGOUTBOX_HTTP__PORT"),
        ("PGOUTBOX_DSM", "PGOUTBOX_DSN"),
        ("PGOUTBOX_DESTINATIONS__ORDERS__ULR", "PGOUTBOX_DESTINATIONS__ORDERS__URL"),
        ("PGOUTBOX_DATABASE__SCHEMA_NAME", "PGOUTBOX_DATABASE__SCHEMA"),
        ("PGOUTBOX_DEAD_HEAD", "PGOUTBOX_DESTINATIONS__DEFAULT__DEAD_HEAD"),
        ("PGOUTBOX_URL", "PGOUTBOX_DESTINATIONS__DEFAULT__URL"),
        ("PGOUTBOX_RETRY__CAP", "PGOUTBOX_DESTINATIONS__DEFAULT__RETRY__CAP"),
        ("PGOUTBOX_FORMAT", "PGOUTBOX_LOG__FORMAT"),
    ],
)
def test_an_unknown_name_is_refused_with_the_nearest_known_one(mistyped: str, meant: str) -> None:
    [problem] = problems(LOCAL | {mistyped: SENSITIVE})
    assert problem == f"{mistyped} is no setting. Did you mean {meant}?"


def test_an_unknown_name_that_resembles_nothing_is_refused_too() -> None:
    [problem] = problems(LOCAL | {"PGOUTBOX_XYZZY": "1"})
    assert problem == "PGOUTBOX_XYZZY is no setting. Remove it; docs/settings.md lists them all."


def test_unknown_keys_of_the_file_are_refused_with_their_place(tmp_path: Path) -> None:
    config = toml(tmp_path, "max_in_fligth = 3\n")
    [problem] = problems(LOCAL | config)
    place = f"(max_in_fligth in {config['PGOUTBOX_CONFIG']})"
    assert problem.startswith(f"PGOUTBOX_MAX_IN_FLIGTH {place} is no setting.")
    assert problem.endswith("Did you mean PGOUTBOX_MAX_IN_FLIGHT?")


def test_a_broken_rule_names_the_place_in_the_file(tmp_path: Path) -> None:
    config = toml(tmp_path, "[lease]\nrenew = 20\n")
    [problem] = problems(LOCAL | config)
    assert problem.startswith("PGOUTBOX_LEASE__RENEW (lease.renew in ")


def test_names_for_tests_and_for_their_cluster_are_left_alone() -> None:
    load_settings(LOCAL | {"PGOUTBOX_TEST_DSN": "x", "PGOUTBOX_KUBE_VERSION": "1.31"})


def test_what_kubernetes_says_about_services_is_left_alone() -> None:
    load_settings(
        LOCAL
        | {
            "PGOUTBOX_SERVICE_HOST": "10.0.0.7",
            "PGOUTBOX_SERVICE_PORT": "8080",
            "PGOUTBOX_SERVICE_PORT_HTTP": "8080",
            "PGOUTBOX_PORT": "tcp://10.0.0.7:8080",
            "PGOUTBOX_PORT_8080_TCP": "tcp://10.0.0.7:8080",
            "PGOUTBOX_PORT_8080_TCP_ADDR": "10.0.0.7",
            "PGOUTBOX_PORT_8080_TCP_PORT": "8080",
            "PGOUTBOX_PORT_8080_TCP_PROTO": "tcp",
            "PGOUTBOX_HTTP_PORT": "tcp://10.0.0.8:80",
            "PGOUTBOX_OPERATOR_SERVICE_HOST": "10.0.0.9",
            "PGOUTBOX_OPERATOR_PORT_53_UDP": "udp://10.0.0.9:53",
        }
    )


def test_an_empty_variable_counts_as_not_set() -> None:
    settings = load_settings(LOCAL | {"PGOUTBOX_LISTEN_DSN": "", "PGOUTBOX_HTTP__PORT": ""})
    assert settings.listen_dsn is None
    assert settings.http.port == 8080


@pytest.mark.parametrize("text", ["lease = [", "\udcff"])
def test_a_file_that_cannot_be_read_is_one_problem(tmp_path: Path, text: str) -> None:
    path = tmp_path / "pgoutbox.toml"
    path.write_bytes(text.encode(errors="surrogateescape"))
    [problem] = problems({"PGOUTBOX_CONFIG": str(path)})
    assert problem.startswith("PGOUTBOX_CONFIG names a file that cannot be read as TOML: ")


def test_a_file_that_is_missing_is_one_problem() -> None:
    [problem] = problems({"PGOUTBOX_CONFIG": "/nowhere/pgoutbox.toml"})
    assert "No such file" in problem


def test_a_file_cannot_name_another(tmp_path: Path) -> None:
    [problem] = problems(LOCAL | toml(tmp_path, 'config = "/etc/other.toml"\n'))
    assert "is not allowed inside the file" in problem


def test_the_table_describes_every_setting_in_a_sentence() -> None:
    rows = settings_table().splitlines()[2:]
    assert len(rows) == 47
    for row in rows:
        assert re.fullmatch(r"\| `PGOUTBOX_[A-Z_<>]+` \| .*\| [^|]*[.)] \|", row), row


def test_the_documentation_is_up_to_date(monkeypatch: pytest.MonkeyPatch) -> None:
    root = Path(__file__).parents[2]
    monkeypatch.chdir(root)
    assert (root / "docs/settings.md").read_text() == page()
    assert main(["--check"]) == 0, "run: python -m pgoutbox.settings.table --write"


def test_the_page_is_written_only_when_that_is_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["--check"]) == 1
    assert "docs/settings.md is out of date" in capsys.readouterr().err
    assert not (tmp_path / "docs").exists()
    assert main(["--write"]) == 0
    assert (tmp_path / "docs/settings.md").read_text() == page()
    assert main(["--check"]) == 0
