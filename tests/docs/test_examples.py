"""Every fenced block of the README and of docs/ is run, or declared in declared.py with a reason.

How to write a block, by its language (every block has one):

`sh`      Typed by bash, which stops at the first failure, in a folder of the page's own.
          PGOUTBOX_DSN leads to a migrated, empty database; every `postgresql://...` in the block
          becomes that database, https://consumer.example/events an endpoint that takes
          everything, and http://collector:4318 one that takes traces. programs.py says how
          `pip install`, `pgoutbox run` and `psql` are typed.
`python`  Run in the same place. The `sh` and `python` blocks of a page are one story: what one
          exports, assigns or defines is there for those that follow.
`sql`     Run in order, in one transaction that is rolled back, apart from that story.
`toml`    Settings are loaded as the worker loads them; other tables are parsed.
`yaml`, `json`  Parsed.
Others    (`text`, `console`, `go`, ...) cannot be run. Declare them.

What a page takes for granted, such as a table `orders`, PREPARED has, as SQL. A block that cannot
be run so goes to declared.py, with the test that runs it or the reason why none can. What can be
checked of a declared block of `sh` is: its `pgoutbox` commands are read by click, and the
pgoutbox.toml that it writes is loaded.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tomllib
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlencode

import pytest
import yaml
from psycopg.conninfo import conninfo_to_dict

from pgoutbox.settings import load_settings
from tests.docs import programs
from tests.docs.declared import DECLARED
from tests.docs.fences import PAGES, ROOT, Block, all_blocks, blocks
from tests.monitoring.test_runbooks import PROGRAMS, parse
from tests.support.otlp import Collector
from tests.support.receiver import Receiver

if TYPE_CHECKING:
    import psycopg

SHOP = """
    CREATE TABLE orders (id serial PRIMARY KEY, total int, paid bool DEFAULT false);
    CREATE TABLE shipments (order_id int);
"""
PREPARED = {
    "docs/consumers.md": SHOP,
    "docs/retention.md": "CREATE ROLE outbox_worker",
    "docs/quickstart.md": "ALTER SEQUENCE outbox_id_seq RESTART",
}
DELIVERED = {"README.md": 1, "docs/quickstart.md": 3}
"""Of stories that deliver messages, how many; none of them is left over."""
DOCUMENTED = re.compile(r"\bpostgresql(\+\w+)?://[^\s'\"`)]*")
CONSUMER = "https://consumer.example/events"
COLLECTOR = "http://collector:4318"
SETTINGS_TABLES = {"destinations", "databases", "database", "lease", "drain", "retention", "desk"}
SECRETS = {
    "partner": "whsec_" + "c2VjcmV0" * 4,
    "shop-dsn": "postgresql:///shop",
    "stock-dsn": "postgresql:///stock",
}
"""What the pages have below /run/secrets."""
HEREDOC = re.compile(r"^cat >pgoutbox\.toml <<'?END'?\n(.*?)^END$", re.DOTALL | re.MULTILINE)
COMMAND = re.compile(
    rf"^(?:\w+=\S+ )*((?:{'|'.join(PROGRAMS)}) .*?)(?: [|>] .*|  +#.*)?$", re.MULTILINE
)
BLOCKS = all_blocks()


def declaration(block: Block) -> tuple[str, str] | None:
    """The page and the name under which a block is declared."""
    for page, declared in DECLARED.items():
        if page == block.page or (page.endswith("*") and block.page.startswith(page[:-1])):
            for name in (block.key, f"[{block.language}]"):
                if name in declared:
                    return page, name
    return None


def told(*languages: str) -> dict[str, list[Block]]:
    """The blocks to run, by page."""
    wanted = [each for each in BLOCKS if each.language in languages and declaration(each) is None]
    return {page: list(group) for page, group in groupby(wanted, key=lambda each: each.page)}


STORIES, STATEMENTS = told("sh", "python"), told("sql")
DATA = [each for found in told("toml", "yaml", "json").values() for each in found]
UNTYPED = [each for each in BLOCKS if each.language == "sh" and declaration(each)]


def as_uri(dsn: str) -> str:
    """A DSN without a space or a quote, for wherever a page has one."""
    parts: dict[str, Any] = {k: v for k, v in conninfo_to_dict(dsn).items() if v is not None}
    return f"postgresql:///{quote(parts.pop('dbname'), '')}?{urlencode(parts)}"


def here(text: str, uri: str, ends: dict[str, str]) -> str:
    """With the test's own database and endpoints for all that are written out."""
    text = DOCUMENTED.sub(lambda found: f"postgresql{found[1] or ''}{uri[10:]}", text)
    for documented, end in ends.items():
        text = text.replace(documented, end)
    return text


def environment(dsn: str, folder: Path) -> dict[str, str]:
    """What a reader's shell begins with."""
    programs.put_into(folder / "bin")
    (folder / "home").mkdir()
    paths = [str(folder / "bin"), str(Path(sys.executable).parent), os.environ["PATH"]]
    ours = ("PGOUTBOX_", "OTEL_")
    clean = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
    return clean | {
        "PATH": os.pathsep.join(paths),
        "PYTHONPATH": str(ROOT),
        "PGOUTBOX_DSN": dsn,
        "PGOUTBOX_DATABASE__INSECURE": "true",
    }


def test_every_block_has_a_language() -> None:
    assert [str(each) for each in BLOCKS if not each.language] == []


def test_every_block_is_run_or_declared() -> None:
    run = {"sh", "python", "sql", "toml", "yaml", "json"}
    missing = [str(each) for each in BLOCKS if each.language not in run and not declaration(each)]
    assert missing == [], "run it or declare it, as the beginning of this file says"


def test_every_declaration_is_of_a_block() -> None:
    used = {declaration(each) for each in BLOCKS}
    declared = {(page, name) for page, found in DECLARED.items() for name in found}
    assert declared - used == set()


def test_every_test_that_a_declaration_names_exists() -> None:
    for reason in {reason for found in DECLARED.values() for reason in found.values()}:
        if reason.startswith("tests/"):
            path, _, name = reason.partition("::")
            assert f"def {name}" in (ROOT / path).read_text(encoding="utf-8"), reason


@pytest.mark.parametrize("page", STORIES)
def test_a_page_is_followed_from_top_to_bottom(
    dsn: str, conn: psycopg.Connection, tmp_path: Path, page: str
) -> None:
    conn.execute(PREPARED.get(page, "").encode())
    uri = as_uri(dsn)
    with Receiver() as receiver, Collector() as collector:
        ends = {CONSUMER: receiver.url, COLLECTOR: collector.url}
        steps = [(each.language, str(each), here(each.text, uri, ends)) for each in STORIES[page]]
        (tmp_path / "steps.json").write_text(json.dumps(steps))
        done = follow(tmp_path, environment(uri, tmp_path))
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    if page in DELIVERED:
        states = [state for (state,) in conn.execute("SELECT status FROM outbox").fetchall()]
        assert states == ["done"] * DELIVERED[page]
        assert receiver.deliveries
    assert bool(collector.spans) == (page == "docs/tracing.md")


def follow(folder: Path, environ: dict[str, str]) -> subprocess.CompletedProcess[str]:
    """Let a reader take the steps of `folder`, in a process of their own."""
    return subprocess.run(
        [sys.executable, "-m", "tests.docs.reader", str(folder / "steps.json")],
        cwd=folder / "home",
        env=environ,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


@pytest.mark.parametrize(
    ("language", "text"),
    [("sh", "false\ntrue"), ("sh", "no-such-program | cat"), ("python", "1 / 0")],
)
def test_a_reader_for_whom_a_step_does_not_work_stops(
    tmp_path: Path, language: str, text: str
) -> None:
    steps = [(language, "the step", text), ("sh", "never", "echo reached")]
    (tmp_path / "steps.json").write_text(json.dumps(steps))
    done = follow(tmp_path, environment("postgresql:///none", tmp_path))
    assert done.returncode == 1
    assert "the step" in done.stderr
    assert "reached" not in done.stdout


def test_a_reader_keeps_what_steps_before_have_set(tmp_path: Path) -> None:
    steps = [
        ("sh", "1", "one=1; export two=2"),
        ("python", "2", "import os; three = os.environ['one'] + os.environ['two']"),
        ("python", "3", "assert three == '12'"),
        ("sh", "4", 'test "$one$two" = 12'),
    ]
    (tmp_path / "steps.json").write_text(json.dumps(steps))
    done = follow(tmp_path, environment("postgresql:///none", tmp_path))
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("page", STATEMENTS)
def test_the_statements_of_a_page_run(conn: psycopg.Connection, page: str) -> None:
    with conn.transaction(force_rollback=True):
        conn.execute(PREPARED.get(page, "").encode())
        for block in STATEMENTS[page]:
            conn.execute(block.text.encode())


@pytest.mark.parametrize("block", DATA, ids=str)
def test_data_can_be_read(block: Block, tmp_path: Path) -> None:
    if block.language == "toml":
        accepted(block.text, tmp_path)
    elif block.language == "yaml":
        assert list(yaml.safe_load_all(block.text))
    else:
        json.loads(block.text)


def accepted(text: str, folder: Path) -> None:
    """The settings, if these are some, as a worker reads them."""
    if not SETTINGS_TABLES & tomllib.loads(text).keys():
        return
    config = folder / "pgoutbox.toml"
    for name, secret in SECRETS.items():
        (folder / name).write_text(secret)
    config.write_text(text.replace("/run/secrets", str(folder)))
    load_settings({"PGOUTBOX_DSN": "postgresql:///shop", "PGOUTBOX_CONFIG": str(config)})


@pytest.mark.parametrize("block", UNTYPED, ids=str)
def test_the_commands_and_settings_of_a_declared_block_exist(block: Block, tmp_path: Path) -> None:
    for settings in HEREDOC.findall(block.text):
        accepted(settings, tmp_path)
    for command in COMMAND.findall(block.text.replace("\\\n", " ")):
        parse(command)


def test_blocks_are_told_apart() -> None:
    lines = ["# One", "```sh", "a", "```", "```sh", "b", "```", "* item", "", "  ```text", "  c"]
    text = "\n".join([*lines, "  ```", "## Two", "```sh", "#d", "```"])
    found = [(each.key, each.line, each.text) for each in blocks("page.md", text)]
    assert found == [
        ("One [sh]", 2, "a\n"),
        ("One [sh 2]", 5, "b\n"),
        ("One [text]", 10, "c\n"),
        ("Two [sh]", 14, "#d\n"),
    ]


def test_the_pages_are_read() -> None:
    assert {"README.md", "docs/operations.md", "docs/runbooks/OutboxBacklogGrowing.md"} <= set(
        PAGES
    )
