"""How arrays travel to the database: as literals, which the statement casts.

psycopg sends a list of integers as ``smallint[]``, ``integer[]`` or ``bigint[]`` depending on its
values, each a statement to prepare of its own; and looking at every element of every list costs a
tenth of a message's whole CPU time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable


def bigints(values: Iterable[int]) -> str:
    """An array literal for ``bigint[]``."""
    return "{" + ",".join(map(str, values)) + "}"


def plain(values: Iterable[str | float | None]) -> str:
    """An array literal of numbers or words that need no quotes; None is NULL."""
    return "{" + ",".join(["NULL" if value is None else str(value) for value in values]) + "}"
