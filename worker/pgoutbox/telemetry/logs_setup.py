"""How log lines look and where they go; `pgoutbox.telemetry.logs` says what they are."""

from __future__ import annotations

import logging
import sys
from typing import TYPE_CHECKING, Literal, TextIO

import structlog

if TYPE_CHECKING:
    from structlog.typing import Processor

LogFormat = Literal["auto", "console", "json"]


def configure(
    log_format: LogFormat = "auto", *, level: str = "info", stream: TextIO | None = None
) -> None:
    """Set up structlog and the standard library's logging for this process.

    Lines go to standard error, because a destination may be standard output. ``auto`` is for
    people on a terminal and JSON elsewhere. ``level`` is for this package; libraries speak up
    from warnings on.
    """
    out = stream or sys.stderr
    shared = _shared_processors()
    renderers = _renderers(_for_people(log_format, out), colors=out.isatty())
    structlog.configure(
        processors=[*shared, *renderers],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=structlog.PrintLoggerFactory(out),
        cache_logger_on_first_use=False,
    )
    handler = logging.StreamHandler(out)
    remove = structlog.stdlib.ProcessorFormatter.remove_processors_meta
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=[structlog.stdlib.add_logger_name, *shared],
            processors=[remove, *renderers],
        )
    )
    root = logging.getLogger()
    root.handlers = [handler]
    root.setLevel(logging.WARNING)
    # It warns of every try to connect; the statement that fails for it says why, and not as often.
    logging.getLogger("psycopg.pool").setLevel(logging.ERROR)


def _for_people(log_format: LogFormat, out: TextIO) -> bool:
    return log_format == "console" or (log_format == "auto" and out.isatty())


def _shared_processors() -> list[Processor]:
    return [
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]


def _renderers(for_people: bool, *, colors: bool) -> list[Processor]:  # noqa: FBT001
    if for_people:
        # Not the rich tracebacks: they print local variables, and with them payloads.
        plain = structlog.dev.plain_traceback
        return [structlog.dev.ConsoleRenderer(colors=colors, exception_formatter=plain)]
    return [structlog.processors.format_exc_info, structlog.processors.JSONRenderer()]
