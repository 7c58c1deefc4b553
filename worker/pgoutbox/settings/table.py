"""The table of settings, generated from the models: ``python -m pgoutbox.settings.table --write``.

Run it in the project's folder; ``--check`` writes nothing and fails when the page is out of date.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Literal, get_args, get_origin

from pgoutbox.settings.names import NAMED, WORKER_LEAVES, Leaf, variable

if TYPE_CHECKING:
    from collections.abc import Sequence

PAGE = Path("docs/settings.md")
# Where the default is no constant.
TOLD_DEFAULTS = {
    ("dsn",): "required",
    ("schema",): "`PGOUTBOX_DATABASE__SCHEMA`",
    ("listen_dsn",): "`PGOUTBOX_DSN`",
    ("owner",): "`$POD_NAME`, else the host name",
    ("url",): "required",
    ("topic",): "see there",
    ("concurrency",): "`50` for `http`, else `PGOUTBOX_MAX_IN_FLIGHT`",
    ("max_attempts",): "`12` (`http`: `18`)",
    ("retry", "base"): "`1` (`http`: `5`)",
    ("retry", "cap"): "`300` (`http`: `86400`)",
    ("allowed_hosts",): "",
    ("desk", "redact"): "",
}
INTRODUCTION = """\
# Settings

Every setting is an environment variable. `PGOUTBOX_CONFIG` may name a TOML file with the same
tree, where `PGOUTBOX_LEASE__RENEW` is `renew` in the section `[lease]` and destinations are
`[destinations.orders]`; the environment wins over the file. An empty variable counts as not set.
All times are in seconds. `pgoutbox check` tells everything that is wrong at once, unknown names
included.

A name replaces `<NAME>`, of a destination or of a database that the exporter watches: lower-case
letters, digits and underscores (`ORDERS` in a variable is `orders`). With one destination
`pgoutbox run --to URL` is enough; it is called `default`. Commands that publish nothing
(`status`, `dead`, `enqueue`, `migrate`, `exporter`) need no URL.

"""


def settings_table() -> str:
    """A Markdown table of every setting, its default and its meaning."""
    rows = [_row(leaf, leaf.path) for leaf in WORKER_LEAVES]
    for section, leaves in NAMED.items():
        rows += [_row(leaf, (section, "<name>", *leaf.path)) for leaf in leaves]
    return "\n".join(["| Variable | Default | Meaning |", "|---|---|---|", *rows]) + "\n"


def page() -> str:
    """The whole of docs/settings.md."""
    return INTRODUCTION + settings_table()


def main(arguments: Sequence[str] | None = None) -> int:
    """Write or check docs/settings.md below the current folder; 1 when it is out of date."""
    parser = argparse.ArgumentParser(prog="python -m pgoutbox.settings.table")
    action = parser.add_mutually_exclusive_group(required=True)
    action.add_argument("--write", action="store_true", help="bring the page up to date")
    action.add_argument("--check", action="store_true", help="fail when it is out of date")
    write = parser.parse_args(arguments).write
    stale = not PAGE.exists() or PAGE.read_text(encoding="utf-8") != page()
    if stale and write:
        PAGE.parent.mkdir(exist_ok=True)
        PAGE.write_text(page(), encoding="utf-8")
    if stale and not write:
        sys.stderr.write(f"{PAGE} is out of date; run this with --write\n")
        return 1
    return 0


def _row(leaf: Leaf, path: tuple[str, ...]) -> str:
    meaning = leaf.field.description or ""
    choices = _choices(leaf.field.annotation)
    if len(choices) > 1:
        meaning += f" One of {', '.join(f'`{choice}`' for choice in choices)}."
    return f"| `{variable(path)}` | {_default(leaf)} | {meaning} |"


def _default(leaf: Leaf) -> str:
    if leaf.path in TOLD_DEFAULTS:
        return TOLD_DEFAULTS[leaf.path]
    value = leaf.field.default
    if value is None:
        return ""
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    return f"`{value:.9g}`" if isinstance(value, int | float) else f"`{value}`"


def _choices(annotation: object) -> tuple[str, ...]:
    return get_args(annotation) if get_origin(annotation) is Literal else ()


if __name__ == "__main__":
    sys.exit(main())
