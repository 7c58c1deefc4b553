"""Headers of a webhook: from a message to the request, and ``Retry-After`` from the answer."""

from __future__ import annotations

import re
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING
from urllib.parse import quote

from pgoutbox.errors import PermanentError
from pgoutbox.message import HEADER_NAME

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

    from pgoutbox.message import ClaimedMessage

# RFC 9110: a value is visible ASCII with blanks inside.
_FIELD_VALUE = re.compile(r"(?:[!-~](?:[ -~]*[!-~])?)?")
_VISIBLE = "!\"#$&'()*+,-./:;<=>?@[\\]^_`{|}~ "

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
OUR_PREFIXES = ("outbox-", "webhook-")


def request_headers(
    message: ClaimedMessage, *, reserved: frozenset[str] = frozenset()
) -> list[tuple[str, str]]:
    """The headers of one request; ``reserved`` names more of them that users may not set.

    Raises `PermanentError` for a user header whose name no header can have.
    """
    ours = [
        ("content-type", _fitting(message.content_type)),
        ("webhook-id", str(message.message_id)),
        ("outbox-aggregate-type", _encoded(message.aggregate_type)),
        ("outbox-aggregate-id", _encoded(message.aggregate_id)),
        ("outbox-event-type", _encoded(message.event_type)),
        ("outbox-attempt", str(message.attempts)),
    ]
    if message.ordering_key is not None:
        ours.append(("outbox-ordering-key", _encoded(message.ordering_key)))
    if message.headers_json != "{}":
        ours.extend(_user_headers(message.headers, reserved))
    return ours


def _user_headers(headers: Mapping[str, str], reserved: frozenset[str]) -> list[tuple[str, str]]:
    kept = []
    for name, value in headers.items():
        if HEADER_NAME.fullmatch(name) is None:
            raise PermanentError(
                f"the message's header {name[:80]!r} has a name that HTTP does not allow; "
                "names are made of ASCII letters, digits and -_.!#$%&'*+^`|~"
            )
        lower = name.lower()
        if lower in FRAMING or lower in OURS or lower in reserved:
            continue
        if lower.startswith(OUR_PREFIXES):
            continue
        kept.append((name, _fitting(value)))
    return kept


def _encoded(value: str) -> str:
    """A value that a consumer may always percent-decode."""
    if "%" not in value and _FIELD_VALUE.fullmatch(value):
        return value
    return _percent(value)


def _fitting(value: str) -> str:
    """A user's value: as it is, and percent-encoded only where it cannot stand in a header."""
    return value if _FIELD_VALUE.fullmatch(value) else _percent(value)


def _percent(value: str) -> str:
    # Blanks stay readable inside, but a receiver strips them at the ends.
    inner = value.strip(" ")
    if not inner:
        return "%20" * len(value)
    start, end = value.index(inner), len(value) - len(value.rstrip(" "))
    middle = quote(inner, safe=_VISIBLE, errors="replace")
    return "%20" * start + middle + "%20" * end


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
