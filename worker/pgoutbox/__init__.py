"""A transactional outbox for PostgreSQL.

The names are loaded when they are first used: a worker sets its signal handlers before
anything heavy is imported, the database driver included.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pgoutbox import inbox
    from pgoutbox._version import __version__
    from pgoutbox.errors import (
        Defer,
        DestinationUnavailable,
        InvalidMessage,
        NotInTransaction,
        PermanentError,
        PgOutboxError,
        RetryableError,
    )
    from pgoutbox.message import Message
    from pgoutbox.producer.enqueue import enqueue, enqueue_many

__all__ = [
    "Defer",
    "DestinationUnavailable",
    "InvalidMessage",
    "Message",
    "NotInTransaction",
    "PermanentError",
    "PgOutboxError",
    "RetryableError",
    "__version__",
    "enqueue",
    "enqueue_many",
    "inbox",
]

_HOMES = {
    "Defer": "pgoutbox.errors",
    "DestinationUnavailable": "pgoutbox.errors",
    "InvalidMessage": "pgoutbox.errors",
    "Message": "pgoutbox.message",
    "NotInTransaction": "pgoutbox.errors",
    "PermanentError": "pgoutbox.errors",
    "PgOutboxError": "pgoutbox.errors",
    "RetryableError": "pgoutbox.errors",
    "__version__": "pgoutbox._version",
    "enqueue": "pgoutbox.producer.enqueue",
    "enqueue_many": "pgoutbox.producer.enqueue",
}


def __getattr__(name: str) -> object:
    if name == "inbox":
        return import_module("pgoutbox.inbox")
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value: object = getattr(import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
