"""What of one lane has to be written together.

A failure and what is given back behind it change in one statement: were the failure written first,
the lane would look free while part of it is still leased.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pgoutbox.events import Settled


def cut(queue: list[Settled], limit: int) -> tuple[list[Settled], list[Settled]]:
    """The first ``limit`` and the rest; a little more, rather than cutting through one lane."""
    end = limit
    while 0 < end < len(queue) and _same_lane(queue[end], queue[end - 1]):
        end += 1
    return queue[:end], queue[end:]


def with_lanes(part: Sequence[Settled], leases: set[tuple[int, int]]) -> set[tuple[int, int]]:
    """These leases, and in ``part`` all others of their lanes."""
    lanes = {
        (message.destination, message.ordering_key)
        for message, *_ in part
        if message.lease in leases and message.ordering_key is not None
    }
    return leases | {
        message.lease
        for message, *_ in part
        if (message.destination, message.ordering_key) in lanes
    }


def split(
    part: Sequence[Settled], leases: set[tuple[int, int]]
) -> tuple[list[Settled], list[Settled]]:
    """Those with one of the leases, and the others."""
    chosen: list[Settled] = []
    others: list[Settled] = []
    for settled in part:
        (chosen if settled.message.lease in leases else others).append(settled)
    return chosen, others


def _same_lane(one: Settled, other: Settled) -> bool:
    key = one.message.ordering_key
    return (
        key is not None
        and key == other.message.ordering_key
        and one.message.destination == other.message.destination
    )
