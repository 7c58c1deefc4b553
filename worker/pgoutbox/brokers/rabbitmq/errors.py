"""What the client's exceptions mean: one table for connecting, one for a message's answer."""

from __future__ import annotations

import asyncio
import re
import socket
import ssl
from typing import TYPE_CHECKING

import aiormq.exceptions as amqp

from pgoutbox.brokers.answers import translated
from pgoutbox.errors import DestinationUnavailable, PublishError, RetryableError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pgoutbox.brokers.answers import Row


class VirtualHostRefused(amqp.InvalidFrameError):
    """The broker answered something else when the virtual host should open."""


class NoConfirmation(amqp.AMQPError):
    """The client has a result for a message, and it is not the broker's acknowledgement."""


class NoTls(ssl.SSLError):
    """What was said for a greeting is none of TLS."""


# The special before the general. While connecting nothing was sent.
CONNECT_ERRORS: Sequence[Row] = (
    (
        amqp.ProbableAuthenticationError,
        DestinationUnavailable,
        "the user or the password was refused; correct them in the destination's URL",
    ),
    (
        amqp.AuthenticationError,
        DestinationUnavailable,
        "the broker does not offer to log in with a password (PLAIN)",
    ),
    (
        amqp.IncompatibleProtocolError,
        DestinationUnavailable,
        "what listens there does not speak AMQP 0-9-1",
    ),
    (
        VirtualHostRefused,
        DestinationUnavailable,
        "the virtual host was refused; does it exist, and may the user use it?",
    ),
    (
        amqp.InvalidFrameError,
        DestinationUnavailable,
        "what listens there does not speak AMQP 0-9-1",
    ),
    (
        amqp.ProtocolSyntaxError,
        DestinationUnavailable,
        "what listens there does not speak AMQP 0-9-1",
    ),
    (
        ssl.SSLCertVerificationError,
        DestinationUnavailable,
        "its TLS certificate was not accepted; name its authority with ca_file",
    ),
    (
        NoTls,
        DestinationUnavailable,
        "what listens there does not speak TLS; correct the port, or write amqp://",
    ),
    (ssl.SSLError, DestinationUnavailable, "the TLS handshake failed"),
    (socket.gaierror, DestinationUnavailable, "the host name has no address"),
    (TimeoutError, DestinationUnavailable, "connecting took too long"),
    (
        amqp.ConnectionClosed,
        DestinationUnavailable,
        "the broker ended the connection at once; does it have too many, or is it going down?",
    ),
    (
        amqp.AMQPConnectionError,
        DestinationUnavailable,
        "the connection ended at once; does that port want TLS (amqps://)?",
    ),
    (OSError, DestinationUnavailable, "no connection could be established"),
    (Exception, DestinationUnavailable, "the broker could not be talked to; see the log"),
)

# Sent: an answer, or the end of the hope for one.
CLIENT_ERRORS: Sequence[Row] = (
    (TimeoutError, RetryableError, "no confirmation in time"),
    (NoConfirmation, RetryableError, "what came is no confirmation"),
    (
        amqp.PublishError,
        RetryableError,
        "no queue is bound for the routing key; bind one, or correct the destination's topic",
    ),
    (
        amqp.DeliveryError,
        RetryableError,
        "the broker refused the message (nack): a queue is full, or has failed",
    ),
    (
        amqp.ChannelNotFoundEntity,
        RetryableError,
        "there is no such exchange; declare it, or correct ?exchange= in the destination's URL",
    ),
    (
        amqp.ChannelAccessRefused,
        DestinationUnavailable,
        "the user may not publish there; grant the permission to write to the exchange",
    ),
    (amqp.ChannelPreconditionFailed, RetryableError, "the broker refused what the channel sent"),
    (amqp.AMQPChannelError, RetryableError, "the channel was closed before the confirmation"),
    (amqp.AMQPConnectionError, RetryableError, "the connection broke before the confirmation"),
    (asyncio.CancelledError, RetryableError, "the connection ended before the confirmation"),
    (Exception, RetryableError, "the connection failed before the confirmation; see the log"),
)

NOT_TLS = frozenset({"WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE", "UNEXPECTED_MESSAGE"})
"""How OpenSSL calls it."""
_LIMIT = re.compile(r"larger than configured max size (\d{1,18})")


def unconnected(error: Exception, where: str) -> PublishError:
    """Why no connection came about."""
    if isinstance(error, amqp.InvalidFrameError) and "Connection.OpenOk" in str(error):
        # To the client this is like any frame that it does not expect. It names the one it does.
        error = VirtualHostRefused()
    if isinstance(error, ssl.SSLError) and error.reason in NOT_TLS:
        error = NoTls()
    return translated(error, CONNECT_ERRORS, where)


def unconfirmed(error: BaseException, where: str) -> PublishError:
    """Why a message that was sent was not confirmed."""
    return translated(error, CLIENT_ERRORS, where)


def size_limit(error: BaseException | None) -> int | None:
    """The largest message that the broker takes, where the error says so."""
    if not isinstance(error, amqp.ChannelPreconditionFailed):
        return None
    found = _LIMIT.search(str(error))
    return int(found[1]) if found else None
