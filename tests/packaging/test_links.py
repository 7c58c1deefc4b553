"""What the pages point to is there: pages, headings, and the paths that the README names."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = [
    *sorted(ROOT.glob("*.md")),
    *sorted(ROOT.glob("docs/**/*.md")),
    *sorted(ROOT.glob("examples/**/*.md")),
]
FENCED = re.compile(r"^ *```.*?^ *```", re.DOTALL | re.MULTILINE)
LINK = re.compile(r"\[[^\]\n]*\]\(([^)\s]+)\)")
NAMED = re.compile(r"`((?:worker|docs|migrations|tests|benchmarks)/[\w./-]*)`")


def text_of(page: Path) -> str:
    """Without its examples of code, which have brackets of their own."""
    return FENCED.sub("", page.read_text(encoding="utf-8"))


def anchors(page: Path) -> set[str]:
    """As code hosts make them of headings: lower case, hyphens for spaces, no punctuation."""
    headings = re.findall(r"^#+ +(.+?) *$", text_of(page), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


def broken(page: Path) -> list[str]:
    found = []
    for link in LINK.findall(text_of(page)):
        if re.match(r"[a-z]+:", link):
            continue
        path, _, anchor = link.partition("#")
        target = page.parent / path if path else page
        if not target.exists() or (anchor and anchor not in anchors(target)):
            found.append(link)
    return found


def test_the_pages_link_to_each_other() -> None:
    assert sum(len(LINK.findall(text_of(page))) for page in PAGES) > 10


@pytest.mark.parametrize("page", PAGES, ids=[str(page.relative_to(ROOT)) for page in PAGES])
def test_every_link_of_a_page_leads_somewhere(page: Path) -> None:
    assert broken(page) == []


def test_a_link_that_leads_nowhere_is_found(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        "# One `heading`, two\n[a](page.md#one-heading-two) [b](#no) [c](gone.md) [d](https://x)\n"
        "```\n[e](code.md)\n```\n",
        encoding="utf-8",
    )
    assert broken(page) == ["#no", "gone.md"]


def test_every_path_that_the_readme_names_exists() -> None:
    named = NAMED.findall((ROOT / "README.md").read_text(encoding="utf-8"))
    assert named
    assert [path for path in named if not (ROOT / path).exists()] == []
