"""From a claim's answer to the first publish, if there is still time for it."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from pgoutbox.events import Claimed

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pgoutbox.dispatch.deliver import Deliverer
    from pgoutbox.dispatch.lanes import Runs
    from pgoutbox.dispatch.loop import DispatchOptions
    from pgoutbox.events import Event
    from pgoutbox.message import ClaimedMessage


class Starter:
    """Starts what was claimed, or hands it back at once."""

    def __init__(
        self,
        deliverer: Deliverer,
        options: DispatchOptions,
        emit: Callable[[Event], None],
        *,
        margin: float,
        stopping: Callable[[], bool],
    ) -> None:
        self._deliverer = deliverer
        self._options = options
        self._emit = emit
        self._margin = margin
        """Nothing is begun so many seconds before its lease ends."""
        self.stopping = stopping
        """Whether nothing is to be begun any more."""

    def begin(self, messages: Sequence[ClaimedMessage], reclaimed: int, sent: float) -> None:
        """Publish these; ``reclaimed`` of them had an expired lease."""
        if not messages:
            return
        self._emit(Claimed(messages, reclaimed, time.monotonic() - sent))
        lease_ends, in_time = self._lease(sent)
        startable: list[ClaimedMessage] = []
        late: list[ClaimedMessage] = []
        for message in messages:
            fit = in_time and self._startable(message.destination)
            (startable if fit else late).append(message)
        ordered = [[message] for message in startable if message.ordering_key is not None]
        self._deliverer.start([m for m in startable if m.ordering_key is None], lease_ends)
        self._deliverer.start_runs(ordered, lease_ends)
        self._deliverer.hand_back(late, lease_ends)

    def begin_runs(self, runs: Runs, sent: float) -> None:
        """Publish these lanes of one destination side by side."""
        messages = runs.messages
        if not messages:
            return
        self._emit(Claimed(messages, 0, time.monotonic() - sent))
        lease_ends, in_time = self._lease(sent)
        if in_time and self._startable(messages[0].destination):
            self._deliverer.start_runs(runs.lanes.values(), lease_ends)
        else:
            self._deliverer.hand_back(messages, lease_ends)

    def _lease(self, sent: float) -> tuple[float, bool]:
        """When it ends, and whether that is late enough to begin anything.

        Counted from before the claim was sent: its own clock started no earlier. An answer may be
        so late that others may take the messages before they are published.
        """
        ends = sent + self._options.lease
        return ends, ends - self._margin > time.monotonic()

    def _startable(self, destination: str) -> bool:
        return not (self.stopping() or self._deliverer.destinations[destination].stopped)
