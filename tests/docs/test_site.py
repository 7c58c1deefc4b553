"""The site is built as `make docs` does it, and what its pages say about tests and links holds."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import pytest

from tests.docs.fences import PAGES, ROOT
from tests.packaging.test_links import LINK, text_of

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

FETCHED = re.compile(r'<(?:script|img|iframe)[^>]* src="([^"]+)|<link[^>]* href="([^"]+)')
NAMED = re.compile(r"`(tests/[\w/]+\.py)(?:::(\w+))?`")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The built site. A page outside the navigation, a link or an anchor to nowhere fails it."""
    folder = tmp_path_factory.mktemp("site")
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--quiet", "--site-dir", str(folder)],
        cwd=ROOT,
        env=os.environ | {"NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    return folder


def test_every_page_is_built(site: Path) -> None:
    built = {str(page.relative_to(site).with_suffix(".md")) for page in site.rglob("*.html")}
    assert {page.removeprefix("docs/") for page in PAGES} - {"README.md"} <= built
    assert not (site / "site").exists()


def test_a_reader_fetches_nothing_from_elsewhere(site: Path) -> None:
    fetched = [
        address
        for page in site.rglob("*.html")
        for found in FETCHED.findall(page.read_text(encoding="utf-8"))
        for address in found
        if address
    ]
    assert fetched
    assert [each for each in fetched if re.match(r"(?:https?:)?//", each)] == []


def test_code_is_highlighted(site: Path) -> None:
    assert '<span class="kn">import</span>' in (site / "quickstart.html").read_text()


def test_files_of_the_repository_are_named_where_the_site_cannot_link_to_them(site: Path) -> None:
    page = (site / "benchmarks.html").read_text(encoding="utf-8")
    assert "<code>benchmarks/README.md</code> in the repository" in page
    assert 'href="../' not in page


def external() -> Iterator[tuple[str, str]]:
    for page in PAGES:
        for link in LINK.findall(text_of(ROOT / page)):
            if re.match(r"[a-z]+:", link):
                yield page, link


def test_links_to_elsewhere_are_well_formed() -> None:
    found = list(external())
    assert found
    for page, link in found:
        parts = urlsplit(link)
        assert parts.scheme in {"http", "https"}, (page, link)
        assert re.fullmatch(r"[a-z0-9-]+(\.[a-z0-9-]+)+", parts.netloc), (page, link)


@pytest.mark.parametrize(
    "page", [page for page in PAGES if NAMED.search((ROOT / page).read_text())]
)
def test_every_test_that_a_page_names_exists(page: str) -> None:
    for path, name in NAMED.findall((ROOT / page).read_text(encoding="utf-8")):
        text = (ROOT / path).read_text(encoding="utf-8")
        assert f"def {name}(" in text or not name, (page, path, name)


def test_every_line_about_a_failure_names_the_test_that_proves_it() -> None:
    text = (ROOT / "docs" / "guarantees.md").read_text(encoding="utf-8")
    rows = [line for line in text.splitlines() if line.startswith("| ") and "| Test |" not in line]
    assert len(rows) > 50
    unproved = [row for row in rows if not NAMED.search(row)]
    assert len(unproved) == 1
    assert "cannot be tested here" in unproved[0]


def test_every_decision_says_when_to_look_at_it_again() -> None:
    text = (ROOT / "docs" / "decisions.md").read_text(encoding="utf-8")
    decisions = re.split(r"\n\n(?=\*\*)", text)[1:]
    assert len(decisions) > 40
    assert [each[:60] for each in decisions if "*Revisit when*" not in each] == []
