"""One message as a command of the NATS protocol. Pure."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING

from pgoutbox.errors import PermanentError
from pgoutbox.message import HEADER_NAME
from pgoutbox.wire.cloudevents import header_value
from pgoutbox.wire.plain import OUR_PREFIX
from pgoutbox.wire.spelling import decodable, fitting

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pgoutbox.message import ClaimedMessage
    from pgoutbox.wire.envelope import Envelope
    from pgoutbox.wire.template import Template

EVENT_PREFIX = "ce-"
SERVERS_PREFIX = "nats-"
"""Headers that tell the server what to do, so they are not the message's to set."""
MAX_CONTROL_LINE = 4096
"""Bytes of a command's first line; a server ends the connection after a longer one."""

_VERSION = b"NATS/1.0\r\n"
# What no token of a subject can hold, or what would be read as more than one token.
_UNFIT = re.compile(r"[\x00-\x20.*>%\x7f]")
_SUBJECT = re.compile(r"[^\x00-\x20.*>\x7f]+(?:\.[^\x00-\x20.*>\x7f]+)*")


def token(value: str) -> str:
    """A value as one token of a subject: what cannot stand there is percent-encoded."""
    return _UNFIT.sub(lambda found: f"%{ord(found[0]):02X}", value)


def fits_subject(text: str) -> bool:
    """Whether this can be published to."""
    return _SUBJECT.fullmatch(text) is not None


def subject_of(message: ClaimedMessage, topic: Template) -> str:
    """Raises `PermanentError` where the message makes no subject."""
    subject = topic.render(message, token)
    if not fits_subject(subject):
        raise PermanentError(
            "the message's subject has an empty part: a field that the topic names is empty"
        )
    return subject


def headers_of(message: ClaimedMessage, envelope: Envelope) -> bytes:
    """The header block. Raises `PermanentError` for a name that no header can have."""
    lines = [
        f"Nats-Msg-Id: {message.message_id}\r\n",
        f"content-type: {fitting(envelope.content_type)}\r\n",
    ]
    for name, value in envelope.headers:
        if _allowed(name):
            lines.append(f"{name}: {_spelled(name, value)}\r\n")
    return b"%b%b\r\n" % (_VERSION, "".join(lines).encode("ascii"))


# The same few names come again and again.
@lru_cache(maxsize=1024)
def _allowed(name: str) -> bool:
    lower = name.lower()
    if lower.startswith(SERVERS_PREFIX) or lower == "content-type":
        return False
    if HEADER_NAME.fullmatch(name) is None:
        raise PermanentError(
            f"the message's header {name[:80]!r} has a name that NATS does not allow"
        )
    return True


def publication(subject: str, reply: str, headers: bytes, body: bytes) -> Sequence[bytes]:
    """What publishes it, in parts. Raises `PermanentError` where the subject is too long."""
    size = len(headers)
    line = f"HPUB {subject} {reply} {size} {size + len(body)}\r\n".encode(errors="replace")
    if len(line) > MAX_CONTROL_LINE:
        raise PermanentError(f"the message's subject is too long: {len(subject)} characters")
    return line, headers, body, b"\r\n"


def _spelled(name: str, value: str) -> str:
    """As over HTTP: clients that are a little older lose all headers over one that is not ASCII."""
    if name.startswith(EVENT_PREFIX):
        return header_value(value)
    # A consumer may always decode our own.
    return decodable(value) if name.startswith(OUR_PREFIX) else fitting(value)
