"""When expired leases are looked for."""

from __future__ import annotations

import time
from datetime import timedelta
from typing import TYPE_CHECKING

from pgoutbox.database.pool import DATABASE_ERRORS
from pgoutbox.dispatch.careful import is_about_rows
from pgoutbox.dispatch.pace import Pace
from pgoutbox.dispatch.reclaim import EVER, reclaim, reclaim_heads
from pgoutbox.dispatch.singly import Singly

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from pgoutbox.database.pool import Database
    from pgoutbox.dispatch.deliver import Deliverer
    from pgoutbox.dispatch.loop import DispatchOptions
    from pgoutbox.dispatch.singly import Expired
    from pgoutbox.dispatch.start import Starter
    from pgoutbox.events import Event
    from pgoutbox.message import ClaimedMessage

    Branch = Callable[..., Awaitable[list[ClaimedMessage]]]

WHOLE_SECONDS = 30.0
OVERLAP = 2.0


class Back:
    """How far back a look at expired leases reaches: to the last look, now and then for ever.

    Under a held xmin horizon the index keeps an entry for every lease that there was.
    """

    def __init__(self) -> None:
        self._whole = Pace(WHOLE_SECONDS)
        self._looked_at: float | None = None
        self._sent_at = 0.0

    def reach(self, now: float) -> timedelta:
        """For a look that is about to be sent."""
        self._sent_at = now
        if self._whole.due(now) or self._looked_at is None:
            return EVER
        return timedelta(seconds=now - self._looked_at + OVERLAP)

    def answered(self, now: float) -> None:
        """It worked."""
        self._looked_at = self._sent_at
        self._whole.answered(now)

    def again(self) -> None:
        """There is more than it brought."""
        self._whole.hasten()


class Reclaimer:
    """Reclaims in its interval, and again at once while that brings something."""

    def __init__(
        self,
        db: Database,
        deliverer: Deliverer,
        starter: Starter,
        options: DispatchOptions,
        emit: Callable[[Event], None],
    ) -> None:
        self._db = db
        self._deliverer = deliverer
        self._starter = starter
        self._options = options
        self._singly = Singly(db, "reclaim", lambda: deliverer.in_flight.ids, emit)
        self._next = 0.0
        self._back = Back()

    def soon(self) -> None:
        """Do not wait for the interval."""
        self._next = 0.0
        self._back.again()

    async def turn(self, slots: dict[str, int]) -> int:
        """Both branches, if the interval is over; how many messages, which take their slots."""
        if time.monotonic() < self._next:
            return 0
        sent = time.monotonic()
        self._next = sent + self._options.reclaim_interval
        since = self._back.reach(sent)
        total, failed = 0, False
        for branch in (reclaim, reclaim_heads):
            if self._starter.stopping():
                return total
            count = await self._claim_by(branch, slots, since)
            total += count or 0
            failed = failed or count is None
        # Where there was no room nothing was looked for, so the next look reaches further back.
        if not failed and slots.keys() >= self._served():
            self._back.answered(time.monotonic())
        if total:
            self._next = sent
            self._back.again()
        return total

    def _served(self) -> set[str]:
        destinations = self._deliverer.destinations.values()
        return {destination.name for destination in destinations if not destination.stopped}

    async def _claim_by(
        self, branch: Branch, slots: dict[str, int], since: timedelta
    ) -> int | None:
        """How many messages; None: something in a row made the statement fail, and may again."""
        try:
            return await self._ask(branch, slots, since, self._singly.held())
        except DATABASE_ERRORS as error:
            if not is_about_rows(error):
                raise
        total = 0

        def wanted(one: Expired) -> bool:
            limit = self._deliverer.destinations[one.destination].policy.max_attempts
            mine = one.ordered if branch is reclaim_heads else one.attempts < limit
            return mine and slots[one.destination] > 0 and not self._starter.stopping()

        async def take(one: Expired, others: list[int]) -> None:
            nonlocal total
            room = {one.destination: 1}
            total += await self._ask(branch, room, since, others)
            slots[one.destination] -= 1 - room[one.destination]

        all_tried = await self._singly.each(slots, since, wanted, take)
        return total if total or all_tried else None

    async def _ask(
        self, branch: Branch, slots: dict[str, int], since: timedelta, held: list[int]
    ) -> int:
        sent = time.monotonic()
        limits = {name: self._deliverer.destinations[name].policy.max_attempts for name in slots}
        messages = await branch(
            self._db,
            owner=self._options.owner,
            lease=self._options.lease,
            slots={name: (free, limits[name]) for name, free in slots.items()},
            suspect_allowed=not self._deliverer.in_flight.suspect,
            held=held,
            since=since,
        )
        self._starter.begin(messages, len(messages), sent)
        for message in messages:
            slots[message.destination] = max(slots[message.destination] - 1, 0)
        return len(messages)
