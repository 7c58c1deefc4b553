"""``python -m pgoutbox_operator.crd --write``: the definition's file, in the project's folder.

``--check`` writes nothing and fails when the file is out of date.
"""

from __future__ import annotations

import argparse
import sys

from pgoutbox_operator.crd.definition import FILE, render


def main(arguments: list[str] | None = None) -> int:
    """The exit code."""
    parser = argparse.ArgumentParser(prog="python -m pgoutbox_operator.crd")
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--check", action="store_true", help="fail when the file is out of date")
    what.add_argument("--write", action="store_true", help="write the file")
    wanted = render()
    if parser.parse_args(arguments).write:
        FILE.parent.mkdir(parents=True, exist_ok=True)
        FILE.write_text(wanted, encoding="utf-8")
        return 0
    if FILE.is_file() and FILE.read_text(encoding="utf-8") == wanted:
        return 0
    sys.stderr.write(f"{FILE} is out of date; run `python -m pgoutbox_operator.crd --write`\n")
    return 1


if __name__ == "__main__":
    sys.exit(main())
