"""librdkafka's own words, without those that it repeats at each try to connect."""

from __future__ import annotations

import logging
import re
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

SILENCE = 60.0
"""Seconds for which the same words about the same broker are not said again."""
REMEMBERED = 100
_VARYING = re.compile(
    r"\[\w\S*#producer-\d+\]|ipv[46]#\S+|rdkafka#\S+|\([^()]*(?:\([^()]*\))?[^()]*\)|\d+ms"
)
"""Durations, counts, which of our producers it is, and which of a broker's addresses."""
_CONNECTING = re.compile(r"FAIL|ERROR")
"""The facilities that tell why there is no connection."""


class Unrepeated(logging.Filter):
    """Passes what was not said for a minute; durations and counts do not make it new."""

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


class Words:
    """What a client is given for a logger."""

    def __init__(self, *, told: Callable[[], bool], heard: Callable[[str], None]) -> None:
        """``told``: whether answers tell why there is no connection. ``heard`` gets the words."""
        self._told = told
        self._heard = heard

    def log(self, level: int, form: str, facility: str, *rest: object) -> None:
        """As a logger's. What answers tell anyway is only for whoever looks for more.

        So are notices: connections that were idle are closed and opened without a word.
        """
        if _CONNECTING.fullmatch(facility):
            self._heard(str(rest[-1]))
            if self._told():
                level = logging.DEBUG
        LOGGER.log(level if level > logging.INFO else logging.DEBUG, form, facility, *rest)
