"""From a message to headers and body of a request, and ``Retry-After`` from the answer."""

from __future__ import annotations

from email.utils import parsedate_to_datetime
from functools import lru_cache
from typing import TYPE_CHECKING

from pgoutbox.wire.cloudevents import CLOUDEVENTS_BINARY, CLOUDEVENTS_STRUCTURED, header_value
from pgoutbox.wire.plain import OUR_PREFIX, PLAIN
from pgoutbox.wire.spelling import decodable, fitting

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from datetime import datetime

    from pgoutbox.message import ClaimedMessage
    from pgoutbox.wire.envelope import WireFormat

# What frames the request or belongs to one connection, so it is never the producer's to say.
FRAMING = frozenset(
    {
        "connection",
        "content-length",
        "expect",
        "host",
        "http2-settings",
        "keep-alive",
        "proxy-authenticate",
        "proxy-authorization",
        "proxy-connection",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
    }
)
# What the adapter says itself.
OURS = frozenset({"accept-encoding", "content-type", "user-agent"})
# Kept for us as a whole, so that a consumer can trust them.
OUR_PREFIXES = (OUR_PREFIX, "webhook-")
CLOUDEVENTS_PREFIX = "ce-"


def request_headers(
    message: ClaimedMessage, wire: WireFormat = PLAIN, *, reserved: frozenset[str] = frozenset()
) -> tuple[list[tuple[str, str]], bytes]:
    """The headers and the body of one request.

    ``reserved`` names more headers that users may not set.
    """
    envelope = wire.encode(message, prefix=CLOUDEVENTS_PREFIX)
    headers, own, spelled = envelope.headers, envelope.own, _SPELLING[wire.name]
    kept = [
        ("content-type", fitting(envelope.content_type)),
        ("webhook-id", str(message.message_id)),
    ]
    kept += [(name, spelled(value)) for name, value in headers[:own]]
    kept += [(name, fitting(value)) for name, value in headers[own:] if _is_free(name, reserved)]
    return kept, envelope.body


@lru_cache(maxsize=1024)
def _is_free(name: str, reserved: frozenset[str]) -> bool:
    """Whether a user may set this header.

    Receivers that pass headers on as variables (CGI, WSGI, PHP) take an underscore for a hyphen.
    """
    read = name.lower().replace("_", "-")
    if "_" in name and read.startswith(CLOUDEVENTS_PREFIX):
        return False
    return not (
        read in FRAMING or read in OURS or read in reserved or read.startswith(OUR_PREFIXES)
    )


# By format: how the values of its own headers are spelled.
_SPELLING: dict[str, Callable[[str], str]] = {
    PLAIN.name: decodable,
    CLOUDEVENTS_BINARY.name: header_value,
    CLOUDEVENTS_STRUCTURED.name: fitting,
}
FORMATS = tuple(_SPELLING)
"""What messages may look like here."""


def retry_after(headers: Mapping[str, str], *, now: datetime) -> float | None:
    """Seconds that the answer asks to wait, or None where it says nothing usable.

    A date counts from the answer's own ``Date``, so that a receiver with a wrong clock is still
    understood; without one it counts from ``now``, which is timezone-aware.
    """
    text = headers.get("Retry-After", "").strip()
    if not text:
        return None
    if text.isascii() and text.isdecimal():
        # Cut, since more digits are no finite number; whoever retries has a limit of its own.
        return float(text[:300])
    until = _date(text)
    if until is None:
        return None
    seconds = (until - (_date(headers.get("Date", "")) or now)).total_seconds()
    return seconds if seconds >= 0 else None


def _date(text: str) -> datetime | None:
    try:
        date = parsedate_to_datetime(text)
    except (ValueError, TypeError, IndexError, OverflowError):
        return None
    # Without a zone it cannot be compared, and HTTP's dates always have one.
    return date if date.tzinfo is not None else None
