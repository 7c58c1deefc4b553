"""Every DSN that a page tells people to export is one that the settings accept."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from pgoutbox.settings import load_settings

ROOT = Path(__file__).parents[2]
EXPORTED = re.compile(r"PGOUTBOX_(?:LISTEN_)?DSN=(\S+)")
PAGES = (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")))
FOUND = [
    (page.name, dsn.strip("'\"`"))
    for page in PAGES
    for dsn in EXPORTED.findall(page.read_text(encoding="utf-8"))
]


def test_there_are_some() -> None:
    assert {page for page, _ in FOUND} >= {"README.md", "operations.md", "metrics.md"}


@pytest.mark.parametrize(("page", "dsn"), FOUND)
def test_a_documented_dsn_is_accepted_as_it_stands(page: str, dsn: str) -> None:
    assert load_settings({"PGOUTBOX_DSN": dsn}).read_dsn() == dsn, page
