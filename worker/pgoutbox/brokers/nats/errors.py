"""What the client's exceptions and the server's answers mean."""

from __future__ import annotations

import socket
import ssl
from typing import TYPE_CHECKING

from nats import errors as nats

from pgoutbox.brokers.answers import translated
from pgoutbox.errors import DestinationUnavailable, PermanentError, PublishError, RetryableError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pgoutbox.brokers.answers import Row


class Denied(nats.Error):
    """The server does not let this user publish to the subject."""


class NoAnswers(nats.Error):
    """The server does not let this user receive answers."""


class Refused(nats.AuthorizationError):
    """The server did not accept the user, the password, the token or the credentials."""


# The special before the general. While connecting nothing was sent.
CONNECT_ERRORS: Sequence[Row] = (
    (
        nats.AuthorizationError,
        DestinationUnavailable,
        "the user, password, token or credentials were refused; correct them in the URL",
    ),
    (
        nats.InvalidUserCredentialsError,
        DestinationUnavailable,
        "the credentials file holds no credentials",
    ),
    (
        nats.SecureConnWantedError,
        DestinationUnavailable,
        "the server offers no TLS, and the URL asks for it (tls=1)",
    ),
    (
        NoAnswers,
        DestinationUnavailable,
        "the user may not subscribe to its inbox; grant it, or set inbox_prefix in the URL",
    ),
    (
        ssl.SSLCertVerificationError,
        DestinationUnavailable,
        "its TLS certificate was not accepted; name its authority with tls=1 and ca_file",
    ),
    (ssl.SSLError, DestinationUnavailable, "the TLS handshake failed"),
    (socket.gaierror, DestinationUnavailable, "the host name has no address"),
    (TimeoutError, DestinationUnavailable, "connecting took too long"),
    (nats.NoServersError, DestinationUnavailable, "no connection could be established"),
    (nats.Error, DestinationUnavailable, "what listens there does not speak NATS"),
    (OSError, DestinationUnavailable, "no connection could be established"),
    (Exception, DestinationUnavailable, "the server could not be talked to; see the log"),
)

# Sent: an answer that is no acknowledgement, or the end of the hope for one.
CLIENT_ERRORS: Sequence[Row] = (
    (
        nats.NoRespondersError,
        RetryableError,
        "no stream takes the subject; create one, or correct the destination's topic",
    ),
    (
        Denied,
        DestinationUnavailable,
        "the user may not publish to the subject; grant it the permission",
    ),
    (
        NoAnswers,
        RetryableError,
        "the user may not subscribe to its inbox; grant it, or set inbox_prefix in the URL",
    ),
    (TimeoutError, RetryableError, "no acknowledgement in time"),
    (nats.Error, RetryableError, "the connection broke before the acknowledgement"),
    (Exception, RetryableError, "the acknowledgement could not be received; see the log"),
)

# What JetStream answers, by its error code. Any other is retried.
ANSWERS: Mapping[int, tuple[type[PublishError], str]] = {
    10002: (RetryableError, "the account's JetStream limits are used up"),
    10008: (RetryableError, "JetStream is not available for now"),
    10009: (RetryableError, "the stream has no leader for now"),
    10023: (RetryableError, "JetStream lacks resources"),
    10028: (RetryableError, "JetStream has no memory left"),
    10039: (RetryableError, "JetStream is not enabled for the account"),
    10047: (RetryableError, "JetStream has no storage left"),
    10054: (PermanentError, "the message is larger than the stream's max_msg_size"),
    10076: (RetryableError, "JetStream is not enabled on the server"),
    10077: (RetryableError, "the stream is full or cannot be written; see its limits and its disk"),
    10097: (PermanentError, "the message's headers are larger than JetStream allows (64 KiB)"),
    10109: (RetryableError, "the stream is sealed"),
}


def unconnected(error: Exception, where: str) -> PublishError:
    """Why no connection came about."""
    return translated(error, CONNECT_ERRORS, where)


def unacknowledged(error: BaseException, where: str) -> PublishError:
    """Why a message that was sent was not acknowledged."""
    return translated(error, CLIENT_ERRORS, where)


def answered(answer: Mapping[str, object], where: str) -> PublishError:
    """What an answer means that is no acknowledgement."""
    code = answer.get("err_code")
    if isinstance(code, int) and code in ANSWERS:
        meaning, text = ANSWERS[code]
        return meaning(f"{where}: {text}")
    number = f"error {code}" if isinstance(code, int) else "an unknown error"
    return RetryableError(f"{where}: JetStream refused the message with {number}")
