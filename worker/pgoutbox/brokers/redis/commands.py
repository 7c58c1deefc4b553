"""What the Redis publisher writes to the connection, in the form that the server reads.

The client's own pipeline costs many times this for a message: it turns each word into bytes, and
joins them, one by one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pgoutbox.wire.envelope import Envelope

# A command is ``*<number of words>``, and ``\r\n$<bytes>\r\n<word>`` for each of them.
_WITH_BODY = b"*%d%b\r\n$4\r\nbody\r\n$%d\r\n%b\r\n"
# What stands before a short word of so many bytes.
_BEFORE = [f"\r\n${length}\r\n" for length in range(256)]


def xadd(stream: str, trim: Sequence[str], envelope: Envelope) -> bytes:
    """``XADD stream [trim] * content-type ... key ... h:NAME ... body ...``."""
    key, headers, content_type, body = envelope
    words = ["XADD", stream, *trim, "*", "content-type", content_type, "key", key]
    for name, value in headers:
        words.append("h:" + name)
        words.append(value)
    return _WITH_BODY % (len(words) + 2, _packed(words), len(body), body)


def command(*words: str) -> bytes:
    """Any command without a payload."""
    return b"*%d%b\r\n" % (len(words), _packed(words))


def _packed(words: Sequence[str]) -> bytes:
    try:
        text = "".join([_BEFORE[len(word)] + word for word in words])
        return text.encode("ascii")
    except (IndexError, UnicodeEncodeError):
        # Lengths are in bytes, and a word may have more of them than characters.
        encoded = [word.encode(errors="replace") for word in words]
        return b"".join([b"\r\n$%d\r\n%b" % (len(word), word) for word in encoded])
