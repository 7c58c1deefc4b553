"""How settings fit together, and what a DSN may look like."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from pgoutbox.settings import Problem, SettingsError, load_settings, warnings
from pgoutbox.settings.dsn import dsn_problems

if TYPE_CHECKING:
    from pathlib import Path

LOCAL = {"PGOUTBOX_DSN": "host=/run/postgresql dbname=shop"}
ENCODED = "p%40s%3As%2Fw%25rd%2B%20%27x%5C"


def refused(environ: dict[str, str], *, to: str | None = None) -> list[Problem]:
    with pytest.raises(SettingsError) as error:
        load_settings(environ, to=to)
    return list(error.value.problems)


def one(environ: dict[str, str], *, to: str | None = None) -> Problem:
    [problem] = refused(LOCAL | environ, to=to)
    return problem


@pytest.mark.parametrize(
    ("environ", "field", "says"),
    [
        ({"LEASE__RENEW": "10.1"}, "LEASE__RENEW", "at most a third of"),
        ({"LEASE__DURATION": "29"}, "LEASE__RENEW", "at most a third of"),
        ({"WAKEUP__MAX_INTERVAL": "31"}, "WAKEUP__MAX_INTERVAL", "expired leases"),
        ({"DRAIN__SOFT": "20.5"}, "DRAIN__SOFT", "at least 10 seconds less"),
        ({"DRAIN__GRACE": "29"}, "DRAIN__SOFT", "at least 10 seconds less"),
        ({"DATABASE__POOL_MAX": "1"}, "DATABASE__POOL_MAX", "at least 2"),
        (
            {"DATABASE__STATEMENT_TIMEOUT": "11"},
            "DESTINATIONS__DEFAULT__PUBLISH_TIMEOUT",
            "must together be at most PGOUTBOX_DRAIN__SOFT (20)",
        ),
        (
            {"DESTINATIONS__DEFAULT__PUBLISH_TIMEOUT": "15.5"},
            "DESTINATIONS__DEFAULT__PUBLISH_TIMEOUT",
            "must together be at most PGOUTBOX_DRAIN__SOFT (20)",
        ),
        (
            {"DESTINATIONS__DEFAULT__CONCURRENCY": "201"},
            "DESTINATIONS__DEFAULT__CONCURRENCY",
            "at most PGOUTBOX_MAX_IN_FLIGHT (200)",
        ),
        (
            {"DESTINATIONS__DEFAULT__RETRY__BASE": "301"},
            "DESTINATIONS__DEFAULT__RETRY__CAP",
            "at least PGOUTBOX_DESTINATIONS__DEFAULT__RETRY__BASE (301)",
        ),
        (
            {"WAKEUP__MODE": "notify", "DATABASE__POOLER": "transaction"},
            "WAKEUP__MODE",
            "insists on notifications",
        ),
    ],
)
def test_settings_that_do_not_fit_together_are_refused(
    environ: dict[str, str], field: str, says: str
) -> None:
    problem = one({f"PGOUTBOX_{name}": value for name, value in environ.items()}, to="noop://")
    assert problem.field == f"PGOUTBOX_{field}"
    assert says in problem.rule
    assert problem.value is not None
    assert problem.advice


@pytest.mark.parametrize(
    "environ",
    [
        {"LEASE__RENEW": "20", "LEASE__DURATION": "60"},
        {"DRAIN__SOFT": "50", "DRAIN__GRACE": "60"},
        {"WAKEUP__MAX_INTERVAL": "30"},
        {"DESTINATIONS__DEFAULT__PUBLISH_TIMEOUT": "15"},
        {"DESTINATIONS__DEFAULT__CONCURRENCY": "200"},
        {"DESTINATIONS__DEFAULT__RETRY__BASE": "300"},
        {
            "WAKEUP__MODE": "notify",
            "DATABASE__POOLER": "transaction",
            "LISTEN_DSN": "host=localhost",
        },
    ],
)
def test_settings_at_the_edge_are_accepted(environ: dict[str, str]) -> None:
    load_settings(
        LOCAL | {f"PGOUTBOX_{name}": value for name, value in environ.items()}, to="noop://"
    )


@pytest.mark.parametrize("url", ["carrier:pigeon", "no-scheme", "://x"])
def test_a_url_without_a_publisher_is_refused_and_not_shown(url: str) -> None:
    problem = one({}, to=url)
    assert problem.field == "PGOUTBOX_DESTINATIONS__DEFAULT__URL"
    assert problem.advice == (
        "There are amqp://, amqps://, http://, https://, jsonl://, kafka://, nats://, noop://,"
        " pubsub://, redis://, rediss://, sns://, sqs://, stdout://."
    )
    assert url not in str(problem)


@pytest.mark.parametrize("name", ["2FAST", "A-B", "_X", "X" * 41])
def test_a_destination_has_a_plain_name(name: str) -> None:
    problem = one({f"PGOUTBOX_DESTINATIONS__{name}__URL": "noop://"})
    assert "is no name for a destination" in problem.rule


def test_the_longest_destination_name_is_accepted() -> None:
    load_settings(LOCAL | {f"PGOUTBOX_DESTINATIONS__{'X' * 40}__URL": "noop://"})


@pytest.mark.parametrize(
    ("environ", "field"),
    [
        ({"DATABASE__POOL_MAX": "2"}, "DATABASE__POOL_MAX"),
        ({"DATABASE__POOLER": "transaction"}, "LISTEN_DSN"),
        ({"DATABASE__INSECURE": "true"}, "DATABASE__INSECURE"),
    ],
)
def test_what_is_merely_unwise_is_a_warning(environ: dict[str, str], field: str) -> None:
    names = {f"PGOUTBOX_{name}": value for name, value in environ.items()}
    settings = load_settings(LOCAL | names, to="noop://")
    assert [warning.field for warning in warnings(settings)] == [f"PGOUTBOX_{field}"]


def test_polling_behind_a_pooler_is_no_reason_to_warn() -> None:
    environ = {"PGOUTBOX_DATABASE__POOLER": "transaction", "PGOUTBOX_WAKEUP__MODE": "poll"}
    assert not warnings(load_settings(LOCAL | environ, to="noop://"))


def test_no_destination_at_all_is_a_warning() -> None:
    [warning] = warnings(load_settings(LOCAL))
    assert "not set for any destination" in warning.rule


@pytest.mark.parametrize(
    "dsn",
    [
        f"postgresql://app:{ENCODED}@localhost/shop",
        "host=127.0.0.1 user=app password='p@s:s/w%rd+ \\'x\\\\'",
    ],
)
def test_a_password_may_hold_any_character_and_is_never_shown(dsn: str) -> None:
    settings = load_settings({"PGOUTBOX_DSN": dsn, "PGOUTBOX_LISTEN_DSN": dsn})
    assert settings.read_dsn() == dsn
    assert settings.read_listen_dsn() == dsn
    for shown in (repr(settings), str(settings), settings.model_dump_json()):
        assert "s/w" not in shown
        assert "%2F" not in shown


@pytest.mark.parametrize(
    "dsn",
    [
        "postgresql://app:p@ss@db.example/shop",
        "postgresql://app:p@ss@localhost/shop",
        "postgresql://app:p/ss@localhost/shop",
        "postgresql://app:1/ss@localhost/shop",
        "postgresql://app:p%ss@localhost/shop",
        "postgresql://app:p ss@localhost/shop",
        "postgres//app:pass@localhost/shop",
        "pass",
    ],
)
def test_a_dsn_that_cannot_be_read_is_refused_without_being_quoted(dsn: str) -> None:
    [problem] = refused({"PGOUTBOX_DSN": dsn})
    assert problem.field == "PGOUTBOX_DSN"
    assert problem.value is None
    assert problem.advice.startswith("Write postgresql://user:password@host/db")
    assert not any(part in str(problem) for part in ("ss@", "p/ss", "pass@", "shop"))


@pytest.mark.parametrize(
    "dsn",
    [
        "",
        "dbname=shop",
        "host=/run/postgresql",
        "host=@abstract",
        "postgresql:///shop?host=/run/postgresql",
        "postgresql://localhost/shop",
        "postgresql://[::1]:5432/shop",
        "host=127.0.0.1,localhost",
        "host=db.example hostaddr=127.0.0.5",
        "host=db.example sslmode=verify-full",
        "host=db.example sslrootcert=system",
        "host=db.example,127.0.0.1 sslmode=verify-full",
    ],
)
def test_a_connection_that_is_verified_or_stays_here_is_accepted(dsn: str) -> None:
    assert not dsn_problems("PGOUTBOX_DSN", dsn, {}, insecure=False)


@pytest.mark.parametrize(
    ("dsn", "environ"),
    [
        ("host=db.example", {}),
        ("host=db.example sslmode=require", {}),
        ("host=db.example sslmode=verify-ca sslrootcert=/ca.pem", {}),
        ("host=127.0.0.1,db.example", {}),
        ("host=localhost hostaddr=10.0.0.7", {}),
        ("service=shop", {}),
        ("dbname=shop", {"PGHOST": "db.example"}),
        ("host=db.example", {"PGSSLMODE": "prefer"}),
    ],
)
def test_a_connection_to_anybody_is_refused(dsn: str, environ: dict[str, str]) -> None:
    [problem] = dsn_problems("PGOUTBOX_DSN", dsn, environ, insecure=False)
    assert "nobody checks which server answers" in problem.rule
    assert "PGOUTBOX_DATABASE__INSECURE=true" in problem.advice
    assert not dsn_problems("PGOUTBOX_DSN", dsn, environ, insecure=True)


def test_libpq_variables_count() -> None:
    environ = {"PGHOST": "db.example", "PGSSLMODE": "verify-full"}
    assert not dsn_problems("PGOUTBOX_DSN", "dbname=shop", environ, insecure=False)


def test_the_listening_connection_is_held_to_the_same_rules() -> None:
    assert one({"PGOUTBOX_LISTEN_DSN": "host=db.example"}).field == "PGOUTBOX_LISTEN_DSN"


def test_a_secret_is_read_from_its_file_each_time(tmp_path: Path) -> None:
    file = tmp_path / "dsn"
    file.write_text("host=localhost password=old\n")
    settings = load_settings({"PGOUTBOX_DSN_FILE": str(file)})
    assert settings.read_dsn() == "host=localhost password=old"
    file.write_text("host=localhost password=new\r\n")
    assert settings.read_dsn() == "host=localhost password=new"
    assert settings.read_listen_dsn() == "host=localhost password=new"
    assert settings.dsn_file == file


def test_the_listening_connection_may_have_a_file_of_its_own(tmp_path: Path) -> None:
    file = tmp_path / "dsn"
    file.write_text("host=localhost port=6543\n")
    settings = load_settings(LOCAL | {"PGOUTBOX_LISTEN_DSN_FILE": str(file)})
    assert settings.read_listen_dsn() == "host=localhost port=6543"


def test_a_secret_and_its_file_are_one_too_many() -> None:
    problem = one({"PGOUTBOX_DSN_FILE": "/run/secrets/dsn"})
    assert str(problem) == ("PGOUTBOX_DSN and PGOUTBOX_DSN_FILE are both given. Keep one of them.")


def test_a_secret_in_the_environment_replaces_its_file_in_the_file(tmp_path: Path) -> None:
    config = tmp_path / "pgoutbox.toml"
    config.write_text('dsn_file = "/nowhere"\n')
    settings = load_settings(LOCAL | {"PGOUTBOX_CONFIG": str(config)})
    assert settings.dsn_file is None
    assert settings.read_dsn() == LOCAL["PGOUTBOX_DSN"]


@pytest.mark.parametrize(
    ("content", "says"),
    [(None, "No such file"), (b"\n", "it is empty"), (b"\xff\xfe", "it is not UTF-8")],
)
def test_a_secret_file_that_cannot_be_read_is_the_only_problem(
    tmp_path: Path, content: bytes | None, says: str
) -> None:
    file = tmp_path / "dsn"
    if content is not None:
        file.write_bytes(content)
    [problem] = refused({"PGOUTBOX_DSN_FILE": str(file)})
    assert problem.field == "PGOUTBOX_DSN_FILE"
    assert problem.value == str(file)
    assert says in problem.rule


@pytest.mark.parametrize(
    ("name", "value", "says"),
    [
        ("DATABASE__INSECURE", "maybe", "is neither true nor false (it is maybe)."),
        ("HTTP__PORT", "x", "must be a whole number (it is x)."),
        ("MAX_IN_FLIGHT", "1.5", "must be a whole number (it is 1.5)."),
        ("DRAIN__SOFT", "soon", "must be a number (it is soon)."),
        ("DRAIN__SOFT", "nan", "must be a finite number (it is nan)."),
    ],
)
def test_a_value_of_the_wrong_kind_is_told_in_plain_words(name: str, value: str, says: str) -> None:
    assert str(one({f"PGOUTBOX_{name}": value})) == f"PGOUTBOX_{name} {says}"


def test_an_advised_number_is_short_and_may_be_used() -> None:
    duration = {"PGOUTBOX_LEASE__DURATION": "20"}
    assert "Lower it to 6.66, or" in one(duration).advice
    load_settings(LOCAL | duration | {"PGOUTBOX_LEASE__RENEW": "6.66"})


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("RETRY__CAP", "1e300"),
        ("BREAKER__PAUSE", "1e12"),
        ("CONCURRENCY", "1000000000000"),
        ("MAX_ATTEMPTS", "99999999999"),
        ("RATE", "1e30"),
    ],
)
def test_what_no_database_could_hold_is_refused(name: str, value: str) -> None:
    problem = one({f"PGOUTBOX_DESTINATIONS__DEFAULT__{name}": value}, to="noop://")
    assert problem.field == f"PGOUTBOX_DESTINATIONS__DEFAULT__{name}"


@pytest.mark.parametrize("key", ["concurrency", "rate", "max_attempts", "publish_timeout"])
def test_a_switch_is_no_number(tmp_path: Path, key: str) -> None:
    path = tmp_path / "pgoutbox.toml"
    path.write_text(f'[destinations.x]\nurl = "noop://"\n{key} = true\n')
    problem = one({"PGOUTBOX_CONFIG": str(path)})
    assert problem.field == f"PGOUTBOX_DESTINATIONS__X__{key.upper()}"


def test_a_value_in_the_file_is_not_hidden_by_a_group_of_that_name_in_the_environment(
    tmp_path: Path,
) -> None:
    path = tmp_path / "pgoutbox.toml"
    path.write_text('destinations = "https://user:hunter2@example.com"\n')
    environ = {"PGOUTBOX_CONFIG": str(path), "PGOUTBOX_DESTINATIONS__X__URL": "noop://"}
    problem = one(environ)
    assert problem.field == "PGOUTBOX_DESTINATIONS"
    assert "hunter2" not in str(problem)


def test_a_file_that_is_nested_without_end_is_one_problem(tmp_path: Path) -> None:
    path = tmp_path / "pgoutbox.toml"
    path.write_text("a = " + "[" * 100_000)
    problem = one({"PGOUTBOX_CONFIG": str(path)})
    assert problem.field == "PGOUTBOX_CONFIG"
