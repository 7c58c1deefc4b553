"""The frame of the command line: codes, sentences, laziness, signals."""

from __future__ import annotations

import os
import subprocess
import sys
from types import ModuleType
from typing import TYPE_CHECKING

import click
import psycopg
import pytest
from click.testing import CliRunner

from pgoutbox import __version__
from pgoutbox.cli import console
from pgoutbox.cli.main import COMMANDS, Entry, group
from pgoutbox.errors import PgOutboxError
from pgoutbox.settings import Problem, SettingsError

if TYPE_CHECKING:
    from collections.abc import Callable

CLEAN = {name: value for name, value in os.environ.items() if not name.startswith("PGOUTBOX_")}
PROBLEMS = [
    Problem(field=field, rule="is odd", advice="") for field in ("PGOUTBOX_A", "PGOUTBOX_B")
]


def run(*words: str, **environ: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "pgoutbox", *words],
        env=CLEAN | environ,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


def python(code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code],
        env=CLEAN,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


@pytest.fixture
def install(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[], object]], None]:
    """Makes a function the command ``probe``."""

    def install(function: Callable[[], object]) -> None:
        module = ModuleType("probe_module")
        module.__dict__["command"] = click.command("probe")(function)
        monkeypatch.setitem(sys.modules, "probe_module", module)
        monkeypatch.setitem(COMMANDS, "probe", Entry("probe_module", "A probe."))

    return install


def failing(error: BaseException) -> Callable[[], None]:
    def function() -> None:
        raise error

    return function


def test_the_version_is_told() -> None:
    done = run("--version")
    assert (done.returncode, done.stdout) == (0, f"pgoutbox {__version__}\n")


@pytest.mark.parametrize("words", [["frobnicate"], ["--frobnicate"], ["check", "--frobnicate"], []])
def test_a_mistake_in_the_usage_exits_with_2(words: list[str]) -> None:
    done = run(*words)
    assert done.returncode == 2
    assert "Traceback" not in done.stderr


def test_settings_that_are_wrong_exit_with_78_and_name_every_problem() -> None:
    done = run("check", PGOUTBOX_LEASE__RENEW="x", PGOUTBOX_COLOUR="red")
    assert done.returncode == 78
    named = [line.split()[1] for line in done.stdout.splitlines()]
    assert named == ["PGOUTBOX_COLOUR", "PGOUTBOX_DSN", "PGOUTBOX_LEASE__RENEW"]


def test_the_overview_lists_all_commands_and_imports_none() -> None:
    done = python(
        "import sys\n"
        "from pgoutbox.cli.main import group\n"
        "try: group.main(['--help'])\n"
        "except SystemExit: pass\n"
        "heavy = {'psycopg', 'pydantic', 'rich', 'aiohttp', 'pgoutbox.cli.check'}\n"
        "print(heavy & set(sys.modules), file=sys.stderr)\n"
    )
    assert done.stderr == "set()\n"
    for name, entry in COMMANDS.items():
        assert f"  {name}" in done.stdout
        assert entry.summary in done.stdout


@pytest.mark.parametrize(("word", "code"), [("run", 0), ("status", -15)])
def test_run_exits_with_0_on_a_signal_that_comes_before_its_imports(word: str, code: int) -> None:
    done = python(
        "import os, signal, sys\n"
        "class Early:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name == 'pgoutbox.cli.main':\n"
        "            assert not {'click', 'psycopg'} & set(sys.modules)\n"
        "            os.kill(os.getpid(), signal.SIGTERM)\n"
        "sys.meta_path.insert(0, Early())\n"
        f"sys.argv = ['pgoutbox', '--debug', '{word}']\n"
        "from pgoutbox.cli import main\n"
        "main()\n"
    )
    assert (done.returncode, done.stderr) == (code, "")


def test_a_missing_extra_is_named() -> None:
    done = python(
        "import sys\n"
        "sys.modules['click'] = None\n"
        "sys.argv = ['pgoutbox', 'status']\n"
        "from pgoutbox.cli import main\n"
        "main()\n"
    )
    assert done.returncode == 1
    assert done.stderr == (
        "pgoutbox: click is not installed; run: pip install 'pgoutbox[worker]', or in a clone of"
        " it: pip install '.[worker]'\n"
    )


@pytest.mark.parametrize(
    ("error", "code", "said"),
    [
        (PgOutboxError("the outbox is on fire"), 1, "pgoutbox: the outbox is on fire\n"),
        (
            psycopg.OperationalError("connection failed\n  no route\n"),
            1,
            "pgoutbox: the database: connection failed; no route\n",
        ),
        (
            SettingsError(PROBLEMS),
            78,
            "pgoutbox: PGOUTBOX_A is odd.\npgoutbox: PGOUTBOX_B is odd.\n",
        ),
        (FileNotFoundError(2, "No such file", "x.json"), 1, "FileNotFoundError"),
        (
            ModuleNotFoundError("no", name="lion"),
            1,
            "pgoutbox: the package lion is not installed\n",
        ),
        (KeyboardInterrupt(), 130, "pgoutbox: interrupted\n"),
        (click.UsageError("that is not how it works"), 2, "Error: that is not how it works\n"),
        (
            ZeroDivisionError("division"),
            1,
            "this is a bug; `pgoutbox --debug ...` shows where\n",
        ),
    ],
)
def test_an_error_is_a_sentence_and_a_code(
    install: Callable[[Callable[[], object]], None], error: BaseException, code: int, said: str
) -> None:
    install(failing(error))
    result = CliRunner().invoke(group, ["probe"])
    assert result.exit_code == code
    assert said in result.stderr
    assert "Traceback" not in result.stderr
    assert result.stdout == ""


def test_debug_shows_the_traceback(install: Callable[[Callable[[], object]], None]) -> None:
    install(failing(PgOutboxError("the outbox is on fire")))
    result = CliRunner().invoke(group, ["--debug", "probe"])
    assert result.exit_code == 1
    assert "Traceback" in result.stderr
    assert result.stderr.endswith("pgoutbox: the outbox is on fire\n")


@pytest.mark.parametrize(("returned", "code"), [(0, 0), (7, 7), (None, 0), ("text", 0), (True, 0)])
def test_an_int_that_a_command_returns_is_its_exit_code(
    install: Callable[[Callable[[], object]], None], returned: object, code: int
) -> None:
    install(lambda: returned)
    assert CliRunner().invoke(group, ["probe"]).exit_code == code


def test_a_command_whose_reader_left_exits_cleanly() -> None:
    done = python(
        "import os, sys, types\n"
        "import click\n"
        "from pgoutbox.cli import main\n"
        "from pgoutbox.cli.main import COMMANDS, Entry\n"
        "from pgoutbox.cli.console import say\n"
        "reading, writing = os.pipe()\n"
        "os.close(reading)\n"
        "os.dup2(writing, 1)\n"
        "module = types.ModuleType('probe')\n"
        "module.command = click.command('probe')(lambda: [say('x' * 99) for _ in range(9999)])\n"
        "sys.modules['probe'] = module\n"
        "COMMANDS['probe'] = Entry('probe', '')\n"
        "sys.argv = ['pgoutbox', 'probe']\n"
        "main()\n"
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_progress_off_a_terminal_is_a_line_now_and_then(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    clock = iter([0.0, 1.0, 6.0, 6.0, 7.0])
    monkeypatch.setattr("pgoutbox.cli.console.time.monotonic", lambda: next(clock))
    with console.progress("enqueued", total=30) as advance:
        advance(10)
        advance(10)
        advance(10)
    assert capsys.readouterr().err == "pgoutbox: enqueued: 20 of 30\n"


def test_progress_on_a_terminal_is_a_bar() -> None:
    code = (
        "from pgoutbox.cli.console import progress\n"
        "with progress('enqueued', total=2) as advance:\n"
        "    advance(2)\n"
        "print('done')\n"
    )
    terminal, inside = os.openpty()
    try:
        done = subprocess.run(
            [sys.executable, "-c", code],
            env=CLEAN | {"TERM": "xterm"},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=inside,
            check=True,
            timeout=60,
        )
        drawn = os.read(terminal, 10_000).decode()
    finally:
        os.close(inside)
        os.close(terminal)
    assert done.stdout == b"done\n"
    assert "enqueued" in drawn
    assert "2/2" in drawn


def test_json_is_one_object_on_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    console.say_json({"a": "ä\n", "at": console})
    out = capsys.readouterr().out
    assert out.count("\n") == 1
    assert out.startswith('{"a": "ä\\n", "at": "<module')
