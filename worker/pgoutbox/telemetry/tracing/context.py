"""The trace context that a producer stored with its message.

Looked at for every message, so the flag first: of what is not sampled nothing is parsed. Needs no
OpenTelemetry.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pgoutbox.message import ClaimedMessage

# As PostgreSQL writes jsonb. A quotation mark within a name or a value has a backslash before it.
_KEY = '"traceparent": "'
_LAST = len(_KEY) + len("00-") + 32 + len("-") + 16 + len("-0")
"""Where the flags end, counted from the key: the last digit has that for sampled."""
_ODD = "13579bdf"
SAMPLED, RANDOM = 0x01, 0x02
"""Flags: somebody keeps the trace; its id is random."""

_TRACEPARENT = re.compile(
    r'(?<=[{ ])"traceparent": "'
    r"(?P<version>(?!ff)[0-9a-f]{2})"
    r"-(?P<trace>(?!0{32})[0-9a-f]{32})-(?P<span>(?!0{16})[0-9a-f]{16})-(?P<flags>[0-9a-f]{2})"
    r'(?P<more>-[^"\\]{0,448})?"'
)
_TRACESTATE_LIMIT = 512
_MEMBER = r"[a-z0-9][a-z0-9_*/@-]{0,255}=[\x20-\x2b\x2d-\x3c\x3e-\x7e]{0,256}"
_TRACESTATE = re.compile(rf"{_MEMBER}(?:[ \t]*,[ \t]*{_MEMBER}){{0,31}}")


class Stored(NamedTuple):
    """Where in which trace the message was created."""

    trace_id: bytes
    span_id: bytes
    tracestate: str = ""
    flags: int = SAMPLED
    """Those that are known."""


def sampled(messages: Iterable[ClaimedMessage]) -> list[ClaimedMessage]:
    """Those whose stored context seems to be sampled; `stored` tells whether it is one at all."""
    return [
        message
        for message in messages
        if (at := (text := message.headers_json).find(_KEY)) >= 0
        and text[at + _LAST : at + _LAST + 1] in _ODD
    ]


def carrying(messages: Iterable[ClaimedMessage]) -> list[ClaimedMessage]:
    """Those that seem to have a stored context, sampled or not."""
    return [message for message in messages if _KEY in message.headers_json]


def stored(message: ClaimedMessage) -> Stored | None:
    """Its context; None where there is none, and where it is malformed or too long."""
    text = message.headers_json
    found = _TRACEPARENT.search(text)
    if found is None or (found["version"] == "00" and found["more"]):
        return None
    state = _tracestate(text) if '"tracestate"' in text else ""
    flags = int(found["flags"], 16) & (SAMPLED | RANDOM)
    return Stored(bytes.fromhex(found["trace"]), bytes.fromhex(found["span"]), state, flags)


def _tracestate(text: str) -> str:
    state = json.loads(text).get("tracestate", "")
    if len(state) > _TRACESTATE_LIMIT or not _TRACESTATE.fullmatch(state):
        return ""
    return str(state)
