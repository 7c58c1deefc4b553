"""Message ids: new ones in the order of time, and ones derived from a dedup key."""

from __future__ import annotations

import hashlib
import os
import time
from uuid import UUID

# The same 16 bytes as in the SQL function outbox_message_id: all producers derive one id.
_NAMESPACE = bytes.fromhex("7c1d1c5e9f0b4b6a8f3e2a5d6c9b0e17")
_VARIANT = 0b10 << 62
_LOW_62_BITS = (1 << 62) - 1
_TICKS_PER_MILLISECOND = 4096


class _Clock:
    """Counts 1/4096 of a millisecond since 1970, never the same tick twice.

    It takes no lock, which a fork could leave locked for ever: ids are unique by their
    random bits, and between two threads no order is defined anyway.
    """

    __slots__ = ("_last",)

    def __init__(self) -> None:
        self._last = 0

    def tick(self) -> int:
        now = time.time_ns() * _TICKS_PER_MILLISECOND // 1_000_000
        self._last = max(now, self._last + 1)
        return self._last


_clock = _Clock()


def new_id() -> UUID:
    """A UUIDv7 (RFC 9562, 5.7), greater than the last one that this thread was given."""
    tick = _clock.tick()
    milliseconds, fraction = divmod(tick, _TICKS_PER_MILLISECOND)
    random = int.from_bytes(os.urandom(8)) & _LOW_62_BITS
    return UUID(int=milliseconds << 80 | 7 << 76 | fraction << 64 | _VARIANT | random)


def id_of_dedup_key(dedup_key: str) -> UUID:
    """A UUIDv8 (RFC 9562, 5.8): equal keys give equal ids, whenever and wherever."""
    digest = int.from_bytes(hashlib.sha256(_NAMESPACE + dedup_key.encode()).digest()[:16])
    digest = digest & ~(0xF << 76) | 8 << 76
    return UUID(int=digest & ~(0b11 << 62) | _VARIANT)
