"""librdkafka's own words, without those that it repeats at each try to connect."""

from __future__ import annotations

import logging
import re
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

SILENCE = 60.0
"""Seconds for which the same words are not said again."""
REMEMBERED = 100
_VARYING = re.compile(r"\d+ms|rdkafka#\S+|\(\d+ [^)]*\)")


class Unrepeated(logging.Filter):
    """Passes what was not said for a minute; durations do not make it new."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._clock = clock
        self._said: dict[str, float] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether to write it."""
        words, now = _VARYING.sub("", record.getMessage()), self._clock()
        if now - self._said.get(words, -SILENCE) < SILENCE:
            return False
        # The oldest goes: a broker that says ever new things must not fill the memory.
        if len(self._said) >= REMEMBERED:
            del self._said[min(self._said, key=self._said.__getitem__)]
        self._said[words] = now
        return True


LOGGER = logging.getLogger("pgoutbox.kafka")
LOGGER.addFilter(Unrepeated())
