"""``pgoutbox run`` ends when no waiting would mend what is wrong."""

from __future__ import annotations

import pytest
from click.testing import CliRunner

from pgoutbox.cli.main import group
from tests.support.workers import WorkerProcess


@pytest.mark.parametrize("url", ["stdout://?nope=1", "jsonl:///no/such/folder/x.jsonl"])
def test_a_destination_that_cannot_be_used_ends_it_with_the_sentence_of_the_check(
    dsn: str, url: str
) -> None:
    environ = {"PGOUTBOX_DSN": dsn, "PGOUTBOX_DATABASE__INSECURE": "true"}
    checked = CliRunner().invoke(group, ["check", "--to", url], env=environ)
    (sentence,) = checked.stdout.splitlines()
    assert checked.exit_code == 78

    # Whatever was opened before is no further matter to anybody.
    before = {"URL": "http://127.0.0.1:1/", "PUBLISH_TIMEOUT": "1"}
    other = {f"DESTINATIONS__AAA__{name}": value for name, value in before.items()}
    with WorkerProcess(dsn, url, DATABASE__INSECURE="true", **other).start() as worker:
        assert worker.ended() == 78
    said = [line["text"] for line in worker.events("raw")]
    assert said == [sentence.replace("problem: ", "pgoutbox: ")]


def test_all_destinations_that_cannot_be_used_are_told_at_once(dsn: str) -> None:
    other = {"DESTINATIONS__AAA__URL": "noop://?bath=1", "DESTINATIONS__AAA__PUBLISH_TIMEOUT": "1"}
    with WorkerProcess(dsn, "stdout://?nope=1", **other).start() as worker:
        assert worker.ended() == 78
    said = [line["text"] for line in worker.events("raw")]
    assert ["AAA" in line for line in said] == [True, False]
    assert "'bath'" in said[0]
    assert "'nope'" in said[1]
