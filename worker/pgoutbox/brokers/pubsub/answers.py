"""What Pub/Sub says in place of message ids, and what that means for the messages. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pgoutbox.errors import (
    DestinationUnavailable,
    PermanentError,
    PublishError,
    RetryableError,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

NO_CREDENTIALS = (
    "the worker has no Google credentials; give its service account an identity, or name a file "
    "in GOOGLE_APPLICATION_CREDENTIALS"
)
REFUSED_CREDENTIALS = "Google gave no access token for the worker's credentials"
NO_CONNECTION = "no connection could be established"

# How gRPC's own texts begin where nothing was sent. The special before the general.
UNSENT: Sequence[tuple[str, str]] = (
    ("Getting metadata from plugin failed", REFUSED_CREDENTIALS),
    ("failed to connect to all addresses", NO_CONNECTION),
)

# By the name of the gRPC status; there are no others but OK.
CLIENT_ERRORS: Sequence[tuple[str, type[PublishError], str]] = (
    ("INVALID_ARGUMENT", PermanentError, "the service says that the message is not valid"),
    (
        "NOT_FOUND",
        RetryableError,
        "there is no such topic; create it, or correct the project or the topic",
    ),
    (
        "PERMISSION_DENIED",
        DestinationUnavailable,
        "the worker may not publish there; give it roles/pubsub.publisher on the topic",
    ),
    ("UNAUTHENTICATED", DestinationUnavailable, "the worker's credentials are not accepted"),
    ("UNIMPLEMENTED", DestinationUnavailable, "what answers there is not Pub/Sub"),
    ("RESOURCE_EXHAUSTED", RetryableError, "a quota is used up, or the request is too large"),
    (
        "FAILED_PRECONDITION",
        RetryableError,
        "the topic takes no messages now; look at its encryption key and its storage policy",
    ),
    ("UNAVAILABLE", RetryableError, "the service is not available, or the connection broke"),
    ("DEADLINE_EXCEEDED", RetryableError, "no answer in time"),
    ("ABORTED", RetryableError, "the service broke the request off"),
    ("CANCELLED", RetryableError, "the request was broken off"),
    ("INTERNAL", RetryableError, "the service has an error of its own"),
    ("UNKNOWN", RetryableError, "the service has an error of its own"),
    ("DATA_LOSS", RetryableError, "the service has an error of its own"),
    ("OUT_OF_RANGE", RetryableError, "the service has an error of its own"),
    ("ALREADY_EXISTS", RetryableError, "the service has an error of its own"),
)
_BY_STATUS = {status: (meaning, words) for status, meaning, words in CLIENT_ERRORS}
_OTHERWISE = (RetryableError, "the request failed")


def answered(status: str, details: str, where: str) -> PublishError:
    """What a gRPC status means that came from ``where``; its details are never repeated."""
    for beginning, words in UNSENT:
        if details.startswith(beginning):
            return DestinationUnavailable(f"{where}: {words}")
    meaning, words = _BY_STATUS.get(status, _OTHERWISE)
    return meaning(f"{where}: {words}")
