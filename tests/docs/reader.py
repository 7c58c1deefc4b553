"""A reader who follows a page from top to bottom: ``python -m tests.docs.reader STEPS``.

STEPS is a JSON file: a list of ``[language, title, text]``, of shell and Python. It runs in the
current folder. What a block of shell exports or assigns is there for all that follow, and so are
the names of a block of Python.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

KEEP = "trap 'test $? -eq 0 && env -0 >\"$READER_KEEPS\"' EXIT\n"


def type_in(title: str, text: str) -> None:
    """Run a block in a shell that stops at the first failure."""
    keeps = Path("reader-keeps")
    command = ["bash", "-euo", "pipefail", "-a", "-c", KEEP + text]
    done = subprocess.run(
        command, env=os.environ | {"READER_KEEPS": str(keeps.resolve())}, check=False
    )
    if done.returncode:
        sys.exit(f"{title}: the shell ended with {done.returncode}")
    pairs = (each.partition("=") for each in keeps.read_text().split("\0") if each)
    os.environ.update({name: value for name, _, value in pairs})


def follow(steps: list[tuple[str, str, str]]) -> None:
    """Take one step after the other."""
    names: dict[str, Any] = {"__name__": "__main__"}
    for language, title, text in steps:
        sys.stdout.flush()
        if language == "sh":
            type_in(title, text)
        else:
            exec(compile(text, title, "exec"), names)  # noqa: S102 - our own pages


if __name__ == "__main__":
    follow(json.loads(Path(sys.argv[1]).read_text(encoding="utf-8")))
