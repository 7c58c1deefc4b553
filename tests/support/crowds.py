"""Backlogs, and how many of them pass a message by."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from pgoutbox.dispatch.scan import MAX_RUN

if TYPE_CHECKING:
    from collections.abc import Callable

    from pgoutbox.message import ClaimedMessage
    from tests.support.dispatching import Running, Scripted

BACKLOG = 5000
SOON = 10 * MAX_RUN
"""Messages that may be published while a new one waits. Far less than the backlog."""


async def a_tick(_message: ClaimedMessage) -> None:
    """A publish that gives others a turn, as any network would."""
    await asyncio.sleep(0.0005)


async def passed_by(
    running: Running, publisher: Scripted, add: Callable[[], int], after: int = 300
) -> int:
    """How many were published between the commit of a new message and its own publish.

    The new one is added after so many of the backlog.
    """
    await publisher.until(lambda: len(publisher.taken) >= after)
    before = len(publisher.begun)
    new = add()
    await publisher.until(lambda: any(message.id == new for message in publisher.begun[before:]))
    ahead = [message.id for message in publisher.begun[before:]].index(new)
    running.dispatcher.request_stop("seen enough")
    return ahead
