"""``pgoutbox check`` opens what a worker would open, before anybody asks the database."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner

from pgoutbox.cli.main import group
from pgoutbox.destinations import registry

if TYPE_CHECKING:
    from pathlib import Path

    from pgoutbox.publisher import PublisherOptions

# Nobody listens there: whoever asks the database fails, with another exit code.
ENVIRON = {"PGOUTBOX_DSN": "host=127.0.0.1 port=1 connect_timeout=1"}
URL = "PGOUTBOX_DESTINATIONS__DEFAULT__URL"


def check(to: str, **environ: str) -> tuple[int, list[dict[str, str]]]:
    result = CliRunner().invoke(group, ["check", "--json", "--to", to], env=ENVIRON | environ)
    return result.exit_code, json.loads(result.stdout.splitlines()[-1])["problems"]


@pytest.mark.parametrize(
    ("url", "rule"),
    [
        ("stdout://?nope=1", "'nope' is no option of stdout://"),
        ("https://", "the URL names no host"),
        ("jsonl://relative/x.jsonl", "a jsonl URL holds an absolute path"),
        ("jsonl:///no/such/folder/x.jsonl", "cannot be opened for appending"),
    ],
)
def test_a_url_that_a_worker_would_refuse_is_a_problem_with_the_settings(
    url: str, rule: str
) -> None:
    code, (problem,) = check(url)
    assert code == 78
    assert problem["field"] == URL
    assert problem["rule"].startswith("cannot be used: ")
    assert rule in problem["rule"]


def test_every_destination_that_cannot_be_used_is_told() -> None:
    other = {"PGOUTBOX_DESTINATIONS__ORDERS__URL": "noop://?batch=perhaps"}
    code, problems = check("stdout://?nope=1", **other)
    assert code == 78
    assert {problem["field"] for problem in problems} == {URL, *other}


def test_what_is_wrong_with_settings_and_with_urls_is_told_at_once() -> None:
    wrong = {
        "PGOUTBOX_LEASE__RENEW": "soon",
        "PGOUTBOX_DESTINATIONS__MAIL__URL": "gopher://",
        "PGOUTBOX_DESTINATIONS__ORDERS__URL": "noop://?batch=perhaps",
    }
    code, problems = check("stdout://?nope=1", **wrong)
    assert code == 78
    assert {problem["field"] for problem in problems} == {URL, *wrong}


def test_a_worker_that_cannot_start_tells_all_of_that_too() -> None:
    wrong = {
        "PGOUTBOX_LEASE__RENEW": "soon",
        "PGOUTBOX_DESTINATIONS__ORDERS__URL": "noop://?batch=perhaps",
    }
    result = CliRunner().invoke(group, ["run", "--to", "stdout://?nope=1"], env=ENVIRON | wrong)
    assert result.exit_code == 78
    assert [line.split()[1] for line in result.stderr.splitlines()] == [*wrong, URL]


def test_a_url_that_can_be_used_leaves_the_word_to_the_database(tmp_path: Path) -> None:
    code, (problem,) = check(f"jsonl://{tmp_path}/x.jsonl")
    assert code == 1
    assert "URL" not in problem["field"]


def test_what_was_opened_is_closed_and_is_told_what_a_worker_tells_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen: list[Any] = []

    class Fax:
        async def publish(self, message: object) -> None: ...

        async def close(self) -> None:
            seen.append("closed")

    async def open_fax(_url: str, /, *, options: PublisherOptions) -> Fax:
        seen.append(options.destination)
        seen.append((options.publish_timeout, options.concurrency))
        return Fax()

    monkeypatch.setattr(registry, "_load", lambda _entry, _destination: open_fax)
    base = "PGOUTBOX_DESTINATIONS__DEFAULT__"
    check("noop://", **{f"{base}PUBLISH_TIMEOUT": "3", f"{base}CONCURRENCY": "7"})
    assert seen == ["default", (3.0, 7), "closed"]
