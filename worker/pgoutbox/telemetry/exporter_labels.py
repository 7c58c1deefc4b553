"""Which destinations have series of their own: few, and they stay when nothing is left."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from pgoutbox.database.statistics import DestinationStatistics
from pgoutbox.telemetry.tally import MAX_DESTINATIONS, OTHER

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping

FORGOTTEN_AFTER = 3600.0
"""Seconds for which a destination is shown at 0 that has nothing and that no worker serves."""
AGES = frozenset(name for name in DestinationStatistics.__slots__ if name.endswith("_age"))


class Labels:
    """Remembers whom it gave a label, so that series neither freeze nor change places."""

    def __init__(
        self, *, limit: int = MAX_DESTINATIONS, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._limit = limit
        self._clock = clock
        self._seen: dict[str, float] = {}
        self._others_seen: float | None = None

    def spread(
        self, found: Mapping[str, DestinationStatistics], *, served: Iterable[str] = ()
    ) -> dict[str, DestinationStatistics]:
        """What to show under which label: at most ``limit`` destinations, and the others as one.

        ``found`` are the destinations with messages, ``served`` those that workers name: a count
        that is there at 0 before the first dead letter is one that can be seen to rise.
        """
        now = self._clock()
        self._forget(now)
        for name in (*sorted(found), *sorted(served)):
            if name in self._seen or len(self._seen) < self._limit:
                self._seen[name] = now
        shown = {name: found.get(name) or together([]) for name in sorted(self._seen)}
        others = [found[name] for name in found if name not in self._seen]
        if others:
            self._others_seen = now
        if self._others_seen is not None:
            shown[OTHER] = together(others)
        return shown

    def _forget(self, now: float) -> None:
        oldest = now - FORGOTTEN_AFTER
        self._seen = {name: seen for name, seen in self._seen.items() if seen >= oldest}
        if self._others_seen is not None and self._others_seen < oldest:
            self._others_seen = None


def together(counts: Collection[DestinationStatistics]) -> DestinationStatistics:
    """Sums, and the greatest ages."""
    summed: dict[str, Any] = {}
    for field in DestinationStatistics.__slots__:
        values = [getattr(each, field) for each in counts]
        summed[field] = max(values, default=0.0) if field in AGES else sum(values)
    return DestinationStatistics(**summed)
