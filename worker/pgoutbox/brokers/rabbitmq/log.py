"""The client's own words, which repeat the broker's, whole messages, and each try to connect."""

from __future__ import annotations

import logging

LOGGERS = ("aiormq.connection", "aiormq.channel")


class Unasked(logging.Filter):
    """Passes what is critical; all else only where somebody gave ``aiormq`` a level of its own.

    What matters of the rest is in the errors that we raise.
    """

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether to write it."""
        asked_for = logging.getLogger("aiormq").level != logging.NOTSET
        return asked_for or record.levelno >= logging.CRITICAL


_UNASKED = Unasked()


def quiet() -> None:
    """Filter the client's log. May be called again."""
    for name in LOGGERS:
        logging.getLogger(name).addFilter(_UNASKED)
