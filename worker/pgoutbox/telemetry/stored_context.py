"""The trace context that came with a message, read without parsing its headers.

This runs for every message that a worker publishes, and most of them are not sampled: a look at
one character has to do for those.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pgoutbox.events import Settled

# As the server writes `jsonb`: a quote inside a value is escaped, so only the key itself is found.
KEY = '"traceparent": "00-'
CONTEXT = re.compile(r'"traceparent": "00-([0-9a-f]{32})-([0-9a-f]{16})-[0-9a-f]([0-9a-f])"')
FLAG = len(KEY) + len("4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-0")
"""Where the lowest four flags are, counted from the key."""
SAMPLED = frozenset("13579bdf")
NO_TRACE = "0" * 32
NO_SPAN = "0" * 16


class StoredContext(NamedTuple):
    """Who enqueued the message."""

    trace_id: str
    """32 hexadecimal digits."""
    span_id: str
    """16 of them."""


def stored_context(headers_json: str) -> StoredContext | None:
    """The context; None where there is none, or one that is malformed."""
    found = CONTEXT.search(headers_json)
    if found is None or found[1] == NO_TRACE or found[2] == NO_SPAN:
        return None
    return StoredContext(found[1], found[2])


def sampled(batch: Iterable[Settled]) -> list[Settled]:
    """Those whose trace is recorded, as far as one flag tells; their context may be malformed."""
    return [
        settled
        for settled in batch
        # A slice, since the headers may end before.
        if (at := (headers := settled.message.headers_json).find(KEY)) >= 0
        and headers[at + FLAG : at + FLAG + 1] in SAMPLED
    ]
