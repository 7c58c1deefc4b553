"""What a Redis server or its client says, and what that means for a message. Pure."""

from __future__ import annotations

import ssl
from typing import TYPE_CHECKING, TypeAlias

from redis import exceptions as client

from pgoutbox.errors import (
    DestinationUnavailable,
    PermanentError,
    PublishError,
    RetryableError,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    Row: TypeAlias = tuple[type[Exception], type[PublishError], str]

REFUSED_USER = "the server does not accept the user or the password of the URL"
CLUSTER = (
    "the server is part of a cluster, and another node holds this stream; "
    "name the node that holds it, or a proxy, in the URL"
)

# No connection came about: nothing was sent. The special before the general.
CONNECT_ERRORS: Sequence[Row] = (
    (client.AuthenticationWrongNumberOfArgsError, DestinationUnavailable, REFUSED_USER),
    (client.AuthenticationError, DestinationUnavailable, REFUSED_USER),
    (client.AuthorizationError, DestinationUnavailable, REFUSED_USER),
    (client.NoPermissionError, DestinationUnavailable, "the user may not select the database"),
    (client.BusyLoadingError, DestinationUnavailable, "the server is still loading its data"),
    (client.ResponseError, DestinationUnavailable, "the server has no database of that number"),
    (client.InvalidResponse, DestinationUnavailable, "what answers there is no Redis server"),
    (client.TimeoutError, DestinationUnavailable, "connecting took too long"),
    (client.ConnectionError, DestinationUnavailable, "no connection could be established"),
    (client.RedisError, DestinationUnavailable, "no connection could be established"),
    (TimeoutError, DestinationUnavailable, "connecting took too long"),
    (OSError, DestinationUnavailable, "no connection could be established"),
)

# Connected: the answer to one message, or to all that were still waiting for theirs.
CLIENT_ERRORS: Sequence[Row] = (
    (client.AuthenticationError, DestinationUnavailable, REFUSED_USER),
    (client.AuthorizationError, DestinationUnavailable, REFUSED_USER),
    (
        client.NoPermissionError,
        DestinationUnavailable,
        "the user may not add to the stream; give it XADD on the stream's key",
    ),
    (client.BusyLoadingError, DestinationUnavailable, "the server is still loading its data"),
    (
        client.ReadOnlyError,
        DestinationUnavailable,
        "the server is a replica and takes no writes; name the primary in the URL",
    ),
    (
        client.OutOfMemoryError,
        RetryableError,
        "the server's memory is full; raise its maxmemory, or bound the streams with maxlen",
    ),
    (client.MasterDownError, DestinationUnavailable, "the server has lost its primary"),
    (client.MovedError, DestinationUnavailable, CLUSTER),
    (client.AskError, DestinationUnavailable, CLUSTER),
    (client.TryAgainError, DestinationUnavailable, "the cluster is moving the stream"),
    (client.ClusterCrossSlotError, DestinationUnavailable, CLUSTER),
    (client.ClusterDownError, DestinationUnavailable, "the cluster is down"),
    (client.InvalidResponse, RetryableError, "the answer is not Redis's"),
    (client.TimeoutError, RetryableError, "no answer in time"),
    (client.ConnectionError, RetryableError, "the connection ended before the answer"),
    (client.ResponseError, RetryableError, "the server refused the message"),
    (client.RedisError, RetryableError, "the request failed"),
    (TimeoutError, RetryableError, "no answer in time"),
    (OSError, RetryableError, "the connection broke"),
)

# How errors begin that the client has no class of its own for.
ERROR_CODES: Sequence[tuple[str, type[PublishError], str]] = (
    (
        "WRONGTYPE",
        RetryableError,
        "the key of the stream holds something else; rename or delete it, or change the topic",
    ),
    ("BUSY", DestinationUnavailable, "the server is busy with a script"),
    (
        "MISCONF",
        DestinationUnavailable,
        "the server cannot save to its disk and takes no writes until it can",
    ),
    (
        "NOREPLICAS",
        DestinationUnavailable,
        "the server has fewer replicas than its min-replicas-to-write",
    ),
    (
        "unknown command",
        DestinationUnavailable,
        "the server knows no streams; they came with Redis 5",
    ),
    (
        "Protocol error",
        PermanentError,
        "the payload is larger than the server's proto-max-bulk-len",
    ),
)


def unconnected(error: Exception, where: str) -> PublishError:
    """Why there is no connection to ``where``."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, ssl.SSLCertVerificationError):
            return DestinationUnavailable(f"{where}: its TLS certificate was not accepted")
        if isinstance(cause, ssl.SSLError):
            return DestinationUnavailable(f"{where}: the TLS handshake failed")
        cause = cause.__cause__ or cause.__context__
    return _found(error, CONNECT_ERRORS, where)


def refused(error: Exception, where: str) -> PublishError:
    """What an error means that came in place of an answer from ``where``."""
    # Not for its subclasses, whose codes the client has cut off.
    if type(error) is client.ResponseError:
        text = str(error).removeprefix("ERR ")
        for code, meaning, words in ERROR_CODES:
            if text.startswith(code):
                return meaning(f"{where}: {words}")
    return _found(error, CLIENT_ERRORS, where)


def _found(error: Exception, table: Sequence[Row], where: str) -> PublishError:
    for kind, meaning, words in table:
        if isinstance(error, kind):
            return meaning(f"{where}: {words}")
    raise error
