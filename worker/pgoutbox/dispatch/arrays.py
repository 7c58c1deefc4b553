"""How arrays of ids travel."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable


def bigints(values: Iterable[int]) -> str:
    """An array literal, to be cast to ``bigint[]`` in the statement.

    As a Python list it would be sent as ``smallint[]``, ``integer[]`` or ``bigint[]`` depending
    on its values, each a statement to prepare of its own.
    """
    return "{" + ",".join(map(str, values)) + "}"
