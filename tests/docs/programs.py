"""The programs that a page's shell finds: ``python -m tests.docs.programs NAME WORDS...``.

`pip install` checks the extras and installs nothing. `pgoutbox run` runs until nothing is owed, is
told to stop, and has to end with 0. `psql` is not everywhere, so it is a few lines here. Whatever
else is typed is the real thing.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import tomllib
from pathlib import Path

import psycopg

from tests.support.observing import eventually

ROOT = Path(__file__).resolve().parents[2]
RUNNING = "SELECT FROM outbox_workers WHERE state = 'running' AND seen_at >= %s"
OWED = "SELECT FROM outbox WHERE status IN ('pending', 'processing') AND available_at <= now()"


def pip(words: list[str]) -> int:
    """Accept the project itself with extras that it has."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    command, *packages = words
    for package in packages:
        found = re.fullmatch(r"(?:\.|pgoutbox)(?:\[([\w,-]+)\])?", package)
        unknown = (
            set((found[1] or "").split(",")) - {"", *project["optional-dependencies"]}
            if found
            else None
        )
        if command != "install" or unknown is None or unknown:
            sys.exit(f"pip {command} {package}: there is no such extra or package")
    return 0


def run_worker(words: list[str]) -> int:
    """`pgoutbox run`, which is stopped when it has delivered all."""
    with psycopg.connect(os.environ["PGOUTBOX_DSN"], autocommit=True) as conn:
        [(start,)] = conn.execute("SELECT now()").fetchall()

        def idle() -> bool:
            return bool(conn.execute(RUNNING, [start]).rowcount) and not conn.execute(OWED).rowcount

        command = [sys.executable, "-m", "pgoutbox", *words]
        with subprocess.Popen(command, env=os.environ | {"PGOUTBOX_HTTP__PORT": "0"}) as worker:
            try:
                eventually(lambda: worker.poll() is not None or idle(), "everything delivered")
            finally:
                worker.send_signal(signal.SIGTERM)
            return worker.wait(30)


def psql(words: list[str]) -> int:
    """`psql DSN [-v ON_ERROR_STOP=1] (-c STATEMENT | -f FILE)`: run it, print the rows."""
    dsn, *options = words
    what = dict(zip(options[::2], options[1::2], strict=True))
    text = what.get("-c") or Path(what["-f"]).read_text(encoding="utf-8")
    with psycopg.connect(dsn, autocommit=True) as conn:
        cursor = conn.execute(text.encode())
        if cursor.description:
            for row in cursor:
                sys.stdout.write(" | ".join(map(str, row)) + "\n")
    return 0


PROGRAMS = {"pip": pip, "run": run_worker, "psql": psql}
HERE = 'exec "{python}" -m tests.docs.programs'
SCRIPTS = {
    "pip": f'{HERE} pip "$@"',
    "psql": f'{HERE} psql "$@"',
    "pgoutbox": f'test "$1" != run || {HERE} run "$@"\nexec "{{python}}" -m pgoutbox "$@"',
}


def put_into(folder: Path) -> None:
    """Make the programs, for a PATH that begins with the folder."""
    folder.mkdir()
    for name, script in SCRIPTS.items():
        program = folder / name
        program.write_text(f"#!/bin/sh\n{script.format(python=sys.executable)}\n")
        program.chmod(0o755)


if __name__ == "__main__":
    sys.exit(PROGRAMS[sys.argv[1]](sys.argv[2:]))
