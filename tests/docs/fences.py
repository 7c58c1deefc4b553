"""The fenced blocks of the pages, and under which name each is known."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path
from textwrap import dedent
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).resolve().parents[2]
RUNBOOKS = "docs/runbooks/"
PAGES = ["README.md", *sorted(str(p.relative_to(ROOT)) for p in ROOT.glob("docs/**/*.md"))]
HEADING = re.compile(r"#+ +(.+?) *$")
OPENING = re.compile(r" *(```+) *([\w+-]*)")


class Block(NamedTuple):
    """One fenced block."""

    page: str
    key: str
    """`Heading [language]`, and from the second of its kind on `Heading [language 2]`."""
    language: str
    line: int
    text: str

    def __str__(self) -> str:
        return f"{self.page}:{self.line}: {self.key}"


def blocks(page: str, text: str) -> Iterator[Block]:
    """Read a page's blocks from top to bottom."""
    heading, seen = "", Counter[str]()
    lines = iter(enumerate(text.splitlines(keepends=True), start=1))
    for number, line in lines:
        if found := HEADING.match(line):
            heading = found[1]
        elif opened := OPENING.match(line):
            inside = [each for _, each in _until(lines, opened[1])]
            language = opened[2]
            seen[f"{heading} {language}"] += 1
            count = seen[f"{heading} {language}"]
            name = f"{language} {count}" if count > 1 else language
            yield Block(page, f"{heading} [{name}]", language, number, dedent("".join(inside)))


def _until(lines: Iterator[tuple[int, str]], fence: str) -> Iterator[tuple[int, str]]:
    for number, line in lines:
        if line.strip() == fence:
            return
        yield number, line


def all_blocks() -> list[Block]:
    """Every block of the README and of every page below docs/."""
    return [
        block for page in PAGES for block in blocks(page, (ROOT / page).read_text(encoding="utf-8"))
    ]
