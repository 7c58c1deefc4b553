"""What a Redis server or its client says, and what that means for a message. Pure."""

from __future__ import annotations

import ssl
from typing import TYPE_CHECKING

from redis import exceptions as client

from pgoutbox.brokers.answers import Row, translated
from pgoutbox.brokers.redis.links import AllBusy, Closed
from pgoutbox.errors import (
    DestinationUnavailable,
    PermanentError,
    PublishError,
    RetryableError,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

REFUSED_USER = "the server refused us: it does not accept the user or the password of the URL"
SPEAKS_TLS = "does this port speak TLS? redis:// is without it"
CLUSTER = (
    "the server is part of a cluster, and another node holds this stream; "
    "name the node that holds it, or a proxy, in the URL"
)

# No connection came about: nothing was sent. The special before the general.
CONNECT_ERRORS: Sequence[Row] = (
    (Closed, DestinationUnavailable, "the publisher is closed"),
    (AllBusy, DestinationUnavailable, "all connections are busy with other messages"),
    (client.AuthenticationWrongNumberOfArgsError, DestinationUnavailable, REFUSED_USER),
    (client.AuthenticationError, DestinationUnavailable, REFUSED_USER),
    (client.AuthorizationError, DestinationUnavailable, REFUSED_USER),
    (
        client.NoPermissionError,
        DestinationUnavailable,
        "the server refused us: the user may not select the database; give it SELECT",
    ),
    (client.BusyLoadingError, DestinationUnavailable, "the server is still loading its data"),
    (client.ResponseError, DestinationUnavailable, "the server has no database of that number"),
    (client.InvalidResponse, DestinationUnavailable, "what answers there is no Redis server"),
    (client.TimeoutError, DestinationUnavailable, "connecting took too long"),
    (client.ConnectionError, DestinationUnavailable, "no connection could be established"),
    (client.RedisError, DestinationUnavailable, "no connection could be established"),
    (TimeoutError, DestinationUnavailable, "connecting took too long"),
    (OSError, DestinationUnavailable, "no connection could be established"),
    (Exception, DestinationUnavailable, "the client failed in a way that it should not"),
)

# Connected: the answer to one message, or to all that were still waiting for theirs.
CLIENT_ERRORS: Sequence[Row] = (
    (client.AuthenticationError, DestinationUnavailable, REFUSED_USER),
    (client.AuthorizationError, DestinationUnavailable, REFUSED_USER),
    (
        client.NoPermissionError,
        DestinationUnavailable,
        "the server refused us: the user may not add to the stream; give it XADD on its key",
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
    (Exception, RetryableError, "the client failed in a way that it should not"),
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
    # So it speaks of a command of many words from somebody who has not said who they are.
    ("Protocol error: unauthenticated", DestinationUnavailable, REFUSED_USER),
    (
        "Protocol error: invalid bulk length",
        PermanentError,
        "the payload is larger than the server's proto-max-bulk-len",
    ),
    ("Protocol error", RetryableError, "the server could not make sense of the message"),
)


# What is wrong with TLS stands behind the client's own error.
TLS_ERRORS: Sequence[tuple[type[Exception], str]] = (
    (ssl.SSLCertVerificationError, "its TLS certificate was not accepted"),
    (ssl.SSLError, f"the TLS handshake failed; {SPEAKS_TLS}"),
    (ConnectionAbortedError, f"the TLS handshake took too long; {SPEAKS_TLS}"),
)


def unconnected(error: Exception, where: str, *, tls: bool) -> PublishError:
    """Why there is no connection to ``where``."""
    cause: BaseException | None = error if tls else None
    while cause is not None:
        for kind, words in TLS_ERRORS:
            if isinstance(cause, kind):
                return DestinationUnavailable(f"{where}: {words}")
        cause = cause.__cause__ or cause.__context__
    return translated(error, CONNECT_ERRORS, where)


def refused(error: Exception, where: str) -> PublishError:
    """What an error means that came in place of an answer from ``where``."""
    # Not for its subclasses, whose codes the client has cut off.
    if type(error) is client.ResponseError:
        text = str(error).removeprefix("ERR ")
        for code, meaning, words in ERROR_CODES:
            if text.startswith(code):
                return meaning(f"{where}: {words}")
    return translated(error, CLIENT_ERRORS, where)
