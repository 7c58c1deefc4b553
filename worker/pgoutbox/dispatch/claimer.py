"""One turn of claiming: what may be claimed now, from which branch, and what comes of it.

Three branches: expired leases, now and then; unordered messages; lanes.
"""

from __future__ import annotations

import time
from collections import Counter
from typing import TYPE_CHECKING

from psycopg.errors import QueryCanceled

from pgoutbox.database.pool import DATABASE_ERRORS
from pgoutbox.dispatch.careful import Careful, is_about_rows
from pgoutbox.dispatch.claim import ClaimedBatch, claim
from pgoutbox.dispatch.lanes import Asked, Runs, claim_runs
from pgoutbox.dispatch.rooms import Rooms
from pgoutbox.dispatch.scan import FRESH, RECENT, LaneScan, ReadyScan, Scans

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pgoutbox.database.pool import Database
    from pgoutbox.dispatch.deliver import Deliverer
    from pgoutbox.dispatch.loop import DispatchOptions
    from pgoutbox.dispatch.reclaimer import Reclaimer
    from pgoutbox.dispatch.scan import Start
    from pgoutbox.dispatch.start import Starter
    from pgoutbox.events import Event

QUIET_SECONDS = 0.05
"""How long a claim that found no unordered message is not repeated while lanes keep the worker
busy and no notification comes."""


class Claimer:
    """Claims for all destinations, and has what it got begun."""

    def __init__(
        self,
        db: Database,
        deliverer: Deliverer,
        starter: Starter,
        reclaimer: Reclaimer,
        options: DispatchOptions,
        emit: Callable[[Event], None],
    ) -> None:
        self._db = db
        self._deliverer = deliverer
        self._destinations = deliverer.destinations
        self._in_flight = deliverer.in_flight
        self._starter = starter
        self._reclaimer = reclaimer
        self._options = options
        self._careful = Careful(db, owner=options.owner, lease=options.lease, emit=emit)
        self._looked = False
        """Something was asked for in this turn."""
        self._scans = {
            name: Scans(ReadyScan(options.sweep_interval), LaneScan(options.sweep_interval))
            for name in self._destinations
        }
        self._rooms = Rooms(deliverer, self._scans, options.max_in_flight)
        self.ahead = self._rooms.ahead

    def wanting(self) -> bool:
        """Whether a free slot is reason enough for a claim."""
        return any(scans.hungry or bool(scans.lanes.hot) for scans in self._scans.values())

    def woken(self, *, notified: bool) -> None:
        """Something may have been committed since the last claim; ``notified``: it was."""
        for scans in self._scans.values():
            scans.quiet_until = 0.0
            scans.notified = notified or scans.notified

    async def turn(self, slots: dict[str, int], limit: int) -> tuple[int, bool]:
        """All branches that are due, with so many free slots. Messages, and whether to go on.

        ``limit``: messages that one claim may bring, at most.
        """
        self._rooms.limit = limit
        self._looked = False
        asked = list(slots)
        for name in asked:
            self._scans[name].parity = 1 - self._scans[name].parity
            # It may be more than this turn was to have.
            slots[name] = max(slots[name] - self._rooms.divide(name), 0)
        free = {name: count for name, count in slots.items() if count > 0}
        total = await self._reclaimer.turn(free) if free else 0
        slots.update(free)
        if self._starter.stopping():
            return total, False
        claimed, again = await self._claim_ready(slots)
        total += claimed
        for name in asked:
            if self._starter.stopping():
                break
            if not self._rooms.lanes_wanted(name):
                self._scans[name].lanes_hungry = False
            elif slots[name]:
                total += await self._claim_lanes(name, slots)
        if not self._looked:
            # Whoever has more must wait for a slot.
            return total, False
        return total, again or any(self._unfinished(name) for name in asked)

    def _unfinished(self, name: str) -> bool:
        scans = self._scans[name]
        return scans.hungry or scans.lanes.walking

    async def _claim_ready(self, slots: dict[str, int]) -> tuple[int, bool]:
        now = time.monotonic()
        rooms = self._rooms.of_unordered(slots, now)
        if not rooms:
            return 0, False
        starts = {name: self._start(name, now) for name in rooms}
        try:
            batch = await self._ask_ready(rooms, starts)
        except DATABASE_ERRORS as error:
            slow = isinstance(error, QueryCanceled)
            for name, start in starts.items():
                self._scans[name].ready.failed(start, slow=slow)
            raise
        self._starter.begin(batch, 0, now)
        brought = Counter(message.destination for message in batch)
        answered = time.monotonic()
        again = batch.cut
        for name, room in rooms.items():
            slots[name] = max(slots[name] - brought[name], 0)
            scans = self._scans[name]
            scans.ready_hungry = room <= brought[name]
            full = scans.ready_hungry or batch.cut
            scans.ready.brought(starts[name], batch.last.get(name), full=full, now=answered)
            scans.ordered_due = scans.ordered_due or name in batch.ordered
            if brought[name]:
                scans.notified = False
            elif batch.cut or self._look_further(scans, starts[name], answered):
                again = True
            else:
                scans.quiet_until = answered + QUIET_SECONDS
        return len(batch), again

    def _start(self, name: str, now: float) -> Start:
        scans = self._scans[name]
        if self._destinations[name].breaker.is_open:
            scans.probes += 1
            if scans.probes % 2 == 0:
                # At the front there may be a thousand messages that the destination cannot stand.
                return RECENT
        return scans.ready.start(now)

    def _look_further(self, scans: Scans, start: Start, now: float) -> bool:
        """After a notification that nothing explains: what it is about may be due for long.

        A transaction that took its time, or a lane that somebody set going. True: ask at once.
        """
        if not scans.notified:
            return False
        scans.notified = False
        scans.lanes.hasten()
        return not scans.ordered_due and scans.ready.missed(start, now)

    async def _ask_ready(
        self, rooms: Mapping[str, int], starts: Mapping[str, Start]
    ) -> ClaimedBatch:
        self._looked = True
        try:
            return await claim(
                self._db,
                owner=self._options.owner,
                lease=self._options.lease,
                slots=rooms,
                starts=self._careful.starts(starts),
                held=self._careful.held(),
            )
        except DATABASE_ERRORS as error:
            if not is_about_rows(error):
                raise
        return await self._careful.claim(rooms)

    async def _claim_lanes(self, name: str, slots: dict[str, int]) -> int:
        scans = self._scans[name]
        room = self._rooms.of_lanes(name, slots[name])
        scans.turn += 1
        if room == 0:
            scans.lanes_hungry = True
            return 0
        sent = time.monotonic()
        fresh, scans.ordered_due = scans.ordered_due, False
        if fresh:
            scans.lanes.begin(sent)
        asked = self._asked(name, room, slots, fresh=fresh)
        with self._rooms.kept_free(name):
            runs = await self._ask_lanes(scans.lanes, asked)
            if runs is None:
                return 0
            self._remember(scans, asked, runs, sent)
            self._starter.begin_runs(runs, sent)
        slots[name] -= len(runs.lanes)
        return len(runs.messages)

    def _asked(self, name: str, room: int, slots: Mapping[str, int], *, fresh: bool) -> Asked:
        lanes = self._scans[name].lanes
        now = time.monotonic()
        held = self._in_flight.lanes(name)
        # Of the worker's whole room, what nobody else may need now.
        spare = self._options.max_in_flight - len(self._in_flight) - sum(slots.values())
        asked = Asked(
            name,
            lanes=room,
            rows=min(room + max(spare, 0), self._rooms.limit),
            run=1 if lanes.careful else self._deliverer.run_lengths[name].rows,
            cursor=lanes.cursor,
            steps=lanes.steps if lanes.walking else 0,
            turn=self._scans[name].turn % 3,
        )
        if lanes.careful:
            return asked._replace(lanes=min(room, lanes.steps))
        return asked._replace(
            fresh=FRESH if fresh else 0,
            hot={lane: lanes.head(lane, now) for lane in lanes.hot},
            tried=lanes.tries(held, room),
        )

    async def _ask_lanes(self, scan: LaneScan, asked: Asked) -> Runs | None:
        self._looked = True
        try:
            runs = await claim_runs(
                self._db,
                self._careful.past(asked),
                owner=self._options.owner,
                lease=self._options.lease,
            )
        except DATABASE_ERRORS as error:
            if not is_about_rows(error):
                raise
            scan.begin(time.monotonic())
            if scan.failed():
                scan.cursor = await self._careful.put_off_head(asked, error)
                # It is stepped over, whether or not it could be put off.
                scan.missed([scan.cursor])
            return None
        scan.worked()
        return runs

    def _remember(self, scans: Scans, asked: Asked, runs: Runs, sent: float) -> None:
        now = time.monotonic()
        scans.lanes_hungry = len(runs.lanes) >= asked.lanes
        scans.lanes.missed(runs.missed)
        run = run_of_each(asked, runs)
        for lane, messages in runs.lanes.items():
            scans.lanes.took(lane, messages[0].id, len(messages), run, now)
        if asked.steps:
            scans.lanes.walked(runs.cursor, found=runs.found, ended=runs.ended, sent=sent, now=now)
        # There may be more new ones than one claim looks at.
        scans.ordered_due = scans.ordered_due or (asked.fresh > 0 and bool(runs.lanes))


def run_of_each(asked: Asked, runs: Runs) -> int:
    """How many messages a lane brought that may have more.

    Where there was no room for a whole run of each, they shared what there was.
    """
    if not runs.lanes or len(runs.messages) < asked.rows:
        return runs.width
    return max(1, min(runs.width, asked.rows // len(runs.lanes)))
