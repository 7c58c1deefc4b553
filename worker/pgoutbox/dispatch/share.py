"""Who gets how many of the free slots. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping


def share(total: int, wants: Mapping[str, int]) -> dict[str, int]:
    """Split ``total`` so that nobody gets more than wanted and the small ones are served first.

    Max-min fairness: whoever wants less than an equal part leaves the rest to the others. What
    does not divide goes to those that come first in ``wants``.
    """
    left = max(total, 0)
    shares: dict[str, int] = {}
    waiting = sorted((name for name, want in wants.items() if want > 0), key=wants.__getitem__)
    while waiting and wants[waiting[0]] <= left // len(waiting):
        name = waiting.pop(0)
        shares[name] = wants[name]
        left -= wants[name]
    for position, name in enumerate(name for name in wants if name in waiting):
        shares[name] = left // len(waiting) + (position < left % len(waiting))
    return {name: part for name, part in shares.items() if part}
