"""How many messages were delivered, told now and then while there is work."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from pgoutbox.outcome import Published

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from structlog.typing import FilteringBoundLogger

    from pgoutbox.events import Settled

    Later = Callable[[float, Callable[[], None]], object]

TELL_SECONDS = 10.0
"""Two lines are at least this far apart."""
SOON_SECONDS = 1.0
"""The first line after a quiet time waits so long, so that a burst is one line."""


class Deliveries:
    """Counts what was published and recorded, and writes a line about it when it is time."""

    def __init__(self, log: FilteringBoundLogger, clock: Callable[[], float], later: Later) -> None:
        self._log = log
        self._clock = clock
        self._later = later
        self._next = clock()
        self._waiting = False
        self._untold: Counter[str] = Counter()
        self.total = 0
        """Since the worker started."""

    def add(self, recorded: Iterable[Settled]) -> None:
        """Count those that were published."""
        names = [each.message.destination for each in recorded if type(each.outcome) is Published]
        if not names:
            return
        self.total += len(names)
        self._untold.update(names)
        if not self._waiting:
            self._waiting = True
            self._later(max(SOON_SECONDS, self._next - self._clock()), self._on_time)

    def flush(self) -> None:
        """Write what is untold, now."""
        if self._untold:
            self._next = self._clock() + TELL_SECONDS
            counts = dict(sorted(self._untold.items()))
            self._log.info("delivered", count=sum(counts.values()), destinations=counts)
            self._untold.clear()

    def _on_time(self) -> None:
        self._waiting = False
        self.flush()
