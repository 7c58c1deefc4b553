"""The nouns: what an application enqueues, and what a worker holds after a claim."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime, timedelta
    from uuid import UUID

DEFAULT_DESTINATION = "default"
JSON_CONTENT_TYPE = "application/json"

HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
"""What a header may be called: a token of RFC 9110, so that every destination can carry it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """One outbox row to be, as the application describes it.

    ``payload`` is any JSON value (the documented Python types included) and is stored as
    ``jsonb``; ``bytes`` are stored and delivered as they are. Nothing is checked here:
    `pgoutbox.enqueue` checks the whole message before it runs any SQL.
    """

    aggregate_type: str
    aggregate_id: str
    event_type: str
    payload: object
    destination: str = DEFAULT_DESTINATION
    headers: Mapping[str, str] = field(default_factory=dict)
    content_type: str | None = None
    """Defaults to ``application/json``; required for a payload of ``bytes`` that is not JSON."""
    ordering_key: str | None = None
    """Messages of one destination with the same key are published in the order of their commits."""
    ordered: bool = False
    """The key is made of ``aggregate_type`` and ``aggregate_id``. Not together with one given."""
    dedup_key: str | None = None
    """A repeat inserts nothing, and the message id is derived from the key."""
    message_id: UUID | None = None
    """Defaults to a new UUIDv7. Not allowed together with ``dedup_key``."""
    available_at: datetime | None = None
    """Not before this moment (timezone-aware). At most one of this and ``delay``."""
    delay: timedelta | None = None
    """Not before the database's ``now()`` plus this."""


class ClaimedMessage(NamedTuple):
    """One outbox row that this worker holds a lease on. Immutable; walks the dispatcher once.

    A named tuple because a worker makes tens of thousands of them a second.
    The order of the fields is the order of the columns that the claim returns.
    """

    id: int
    lease_version: int
    """The fence: every write to the row carries it."""
    attempts: int
    """Claims that were not refunded, this one included."""
    reclaims: int
    """How many claims before this one ended with an expired lease, one after the other."""
    message_id: UUID
    """What consumers deduplicate by; the same on every attempt."""
    destination: str
    ordering_key: str | None
    aggregate_type: str
    aggregate_id: str
    event_type: str
    content_type: str
    body: bytes
    """The payload's bytes, never parsed by the worker."""
    headers_json: str
    created_at: datetime
    age: float
    """Seconds from when it was first owed to the claim, by the database's clock: since it was
    created, or due where the producer scheduled it for later."""

    @property
    def lease(self) -> tuple[int, int]:
        """Id and version: what the database knows this claim by."""
        return self[:2]

    @property
    def headers(self) -> dict[str, str]:
        """The user's headers and the trace context. Parsed on each access."""
        if self.headers_json == "{}":
            return {}
        headers: dict[str, str] = json.loads(self.headers_json)
        return headers
