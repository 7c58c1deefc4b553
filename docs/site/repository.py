"""A hook of MkDocs: what a page links to in the repository, outside docs/, is named on the site.

On a code host such a link leads to the file. The site has only the pages, so there it becomes the
link's text with the path behind it; a link to a file that is nowhere is left for MkDocs to refuse.
"""

# ruff: noqa: INP001 - MkDocs loads it by its path, it is in no package

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files
    from mkdocs.structure.pages import Page

LINK = re.compile(r"\[([^\]\n]+)\]\((\.\./[^)\s#]+)(#[^)\s]*)?\)")


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Called by MkDocs with the text of each page."""
    del files
    docs = Path(config.docs_dir)
    folder = docs / Path(page.file.src_uri).parent

    def named(found: re.Match[str]) -> str:
        target = (folder / found[2]).resolve()
        if target.is_relative_to(docs) or not target.exists():
            return found[0]
        return f"{found[1]} (`{target.relative_to(docs.parent)}` in the repository)"

    return LINK.sub(named, markdown)
