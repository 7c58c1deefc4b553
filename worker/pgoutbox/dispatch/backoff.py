"""The pause between two tries of a database call. Not the retry of messages: that is `retry`."""

from __future__ import annotations

import asyncio
import random

FIRST = 0.05
LONGEST = 1.0


class Backoff:
    """Doubles up to a second, with half of it random, so that a fleet does not come back in step.

    Short on purpose: a database that is back should be noticed within seconds.
    """

    def __init__(self) -> None:
        self._ceiling = FIRST

    def next(self) -> float:
        """Seconds to wait before the next try; the one after it waits longer."""
        seconds = self._ceiling * random.uniform(0.5, 1.0)  # noqa: S311 - no secret
        self._ceiling = min(self._ceiling * 2, LONGEST)
        return seconds

    async def pause(self) -> None:
        """Wait before the next try."""
        await asyncio.sleep(self.next())

    def reset(self) -> None:
        """The last try worked."""
        self._ceiling = FIRST
