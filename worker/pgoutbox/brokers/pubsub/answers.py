"""What Pub/Sub says in place of message ids, and what that means for the messages. Pure."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from pgoutbox.brokers.answers import Refused
from pgoutbox.errors import DestinationUnavailable, PublishError, RetryableError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

NO_CREDENTIALS = (
    "the worker has no Google credentials; give its service account an identity, or name a file "
    "in GOOGLE_APPLICATION_CREDENTIALS"
)
REFUSED_CREDENTIALS = "Google gave no access token for the worker's credentials"
NO_CONNECTION = "no connection could be established"

NOT_VALID = "the service says that the message is not valid, or too large for it"

# How gRPC's own texts begin where nothing was sent. The special before the general.
UNSENT: Sequence[tuple[str, str]] = (
    ("Getting metadata from plugin failed", REFUSED_CREDENTIALS),
    ("failed to connect to all addresses", NO_CONNECTION),
)

# By the name of the gRPC status; there are no others but OK.
CLIENT_ERRORS: Sequence[tuple[str, Callable[[str], PublishError], str]] = (
    (
        "INVALID_ARGUMENT",
        Refused,
        "the service says that the request is not valid; look at project, topic and endpoint",
    ),
    (
        "NOT_FOUND",
        RetryableError,
        "there is no such topic; create it, or correct the project or the topic",
    ),
    (
        "PERMISSION_DENIED",
        DestinationUnavailable,
        "the service refused us: give the worker roles/pubsub.publisher on the topic",
    ),
    (
        "UNAUTHENTICATED",
        DestinationUnavailable,
        "the service refused us: it does not accept the worker's credentials",
    ),
    ("UNIMPLEMENTED", DestinationUnavailable, "what answers there is not Pub/Sub"),
    ("RESOURCE_EXHAUSTED", partial(RetryableError, throttled=True), "a quota is used up"),
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
# In RESOURCE_EXHAUSTED, by gRPC in its several languages.
_TOO_LARGE = ("larger than max", "exceeds maximum size")


def answered(status: str, details: str, where: str) -> PublishError:
    """What a gRPC status means that came from ``where``; its details are never repeated."""
    for beginning, words in UNSENT:
        if details.startswith(beginning):
            return DestinationUnavailable(f"{where}: {words}")
    if status == "RESOURCE_EXHAUSTED" and any(words in details for words in _TOO_LARGE):
        return Refused(f"{where}: the request is larger than the server takes")
    meaning, words = _BY_STATUS.get(status, _OTHERWISE)
    return meaning(f"{where}: {words}")
