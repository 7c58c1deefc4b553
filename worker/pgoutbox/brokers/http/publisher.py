"""``http://`` and ``https://``: one POST per message."""

from __future__ import annotations

from datetime import UTC, datetime
from http import HTTPStatus
from typing import TYPE_CHECKING

import aiohttp
from aiohttp.http import HttpProcessingError

from pgoutbox._version import __version__
from pgoutbox.brokers.answers import translated
from pgoutbox.brokers.http.exchange import Exchanges
from pgoutbox.brokers.http.guard import AddressRefused, PublicResolver
from pgoutbox.brokers.http.headers import FORMATS, request_headers, retry_after
from pgoutbox.brokers.http.protocol import limited
from pgoutbox.brokers.http.signing import Signer
from pgoutbox.brokers.http.target import Target
from pgoutbox.errors import (
    DestinationGone,
    DestinationUnavailable,
    InvalidDestination,
    PermanentError,
    PublishError,
    RetryableError,
)
from pgoutbox.publisher import no_secrets

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pgoutbox.brokers.answers import Row
    from pgoutbox.message import ClaimedMessage
    from pgoutbox.publisher import PublisherOptions

# Common servers close a connection that was idle for five seconds: leave before they do, or a
# request may meet the end of its connection.
IDLE_SECONDS = 4.0

TAKEN = range(HTTPStatus.OK, HTTPStatus.MULTIPLE_CHOICES)
# What can be nothing but the message's own doing. All else may be about the endpoint or what it is
# told of us, as a wrong secret or a route that is not deployed yet, and must not bury what waits.
PERMANENT_STATUS = frozenset(
    {
        HTTPStatus.BAD_REQUEST,
        HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
        HTTPStatus.UNPROCESSABLE_ENTITY,
        HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE,
    }
)
# Likewise, where the message makes the URL.
PERMANENT_STATUS_OF_A_URL = frozenset({HTTPStatus.GONE, HTTPStatus.REQUEST_URI_TOO_LONG})
CREDENTIALS = "check the signing secrets, or the user and the password in the URL"
ADVICE: dict[int, str] = {
    HTTPStatus.UNAUTHORIZED: CREDENTIALS,
    HTTPStatus.FORBIDDEN: CREDENTIALS,
    HTTPStatus.NOT_FOUND: "check the path in the URL",
    HTTPStatus.METHOD_NOT_ALLOWED: "check the path in the URL, which takes no POST",
    HTTPStatus.UNSUPPORTED_MEDIA_TYPE: "check the content type and the destination's format",
}
"""What to do, as far as the status tells."""

# The client's errors, the special before the general, and what each means here.
CLIENT_ERRORS: tuple[Row, ...] = (
    # Never connected: nothing was sent.
    (
        aiohttp.ClientConnectorCertificateError,
        DestinationUnavailable,
        "its TLS certificate was not accepted",
    ),
    (aiohttp.ClientConnectorSSLError, DestinationUnavailable, "the TLS handshake failed"),
    (aiohttp.ServerFingerprintMismatch, DestinationUnavailable, "its TLS certificate has changed"),
    (aiohttp.ClientConnectorDNSError, DestinationUnavailable, "the host name has no address"),
    (aiohttp.ClientConnectorError, DestinationUnavailable, "no connection could be established"),
    (aiohttp.ConnectionTimeoutError, DestinationUnavailable, "connecting took too long"),
    # Connected: the request may have arrived.
    (aiohttp.ServerTimeoutError, RetryableError, "no answer in time"),
    (aiohttp.ServerDisconnectedError, RetryableError, "the connection ended before the answer"),
    (aiohttp.ClientConnectionError, RetryableError, "the connection broke"),
    (aiohttp.ClientPayloadError, RetryableError, "the answer broke off"),
    (HttpProcessingError, RetryableError, "the answer is not HTTP"),
    (
        AddressRefused,
        PermanentError,
        "the message leads to an address that is not public; allowed_hosts may allow the host",
    ),
    (aiohttp.ClientError, RetryableError, "the request failed"),
    (TimeoutError, RetryableError, "no answer in time"),
    (OSError, RetryableError, "the connection broke"),
    (Exception, RetryableError, "the request failed in a way that is a bug; the log says where"),
)


async def open_http(url: str, /, *, options: PublisherOptions) -> HttpPublisher:
    """Open an ``http://`` or ``https://`` URL, without connecting to it.

    The path and the query are sent as they are written, but for fields of the message. A user and
    a password in the URL become Basic authentication.
    """
    name = options.destination
    if options.topic is not None:
        raise InvalidDestination(
            name, "a webhook has no topic; fields of the message may stand in the URL"
        )
    if options.wire.name not in FORMATS:
        raise InvalidDestination(
            name,
            f"the wire format {options.wire.name} is none for webhooks; "
            f"there are {', '.join(FORMATS)}",
        )
    target = Target(url, destination=name, allowed_hosts=options.allowed_hosts)
    signer = None
    if options.signing_secrets is not no_secrets:
        signer = Signer(options.signing_secrets)
        signer.check(name)
    return HttpPublisher(target, options, signer)


class HttpPublisher:
    """Posts to a URL. Follows no redirect, keeps no cookie, uses no proxy of the environment."""

    def __init__(
        self, target: Target, options: PublisherOptions, signer: Signer | None = None
    ) -> None:
        own_headers = [
            ("User-Agent", f"pgoutbox/{__version__}"),
            ("Accept-Encoding", "identity"),
        ]
        self._reserved: frozenset[str] = frozenset()
        if target.authorization is not None:
            own_headers.append(("Authorization", target.authorization))
            self._reserved = frozenset({"authorization"})
        self._target = target
        self._wire = options.wire
        self._signer = signer
        self._closed = False
        connector = aiohttp.TCPConnector(
            limit=options.concurrency,
            keepalive_timeout=IDLE_SECONDS,
            resolver=PublicResolver() if target.public_only else None,
        )
        self._exchanges = Exchanges(
            limited(connector),
            own_headers=own_headers,
            connect_within=options.connect_within,
            answer_within=options.answer_within,
        )

    async def publish(self, message: ClaimedMessage) -> None:
        """POST the message; a 2xx answer takes it."""
        if self._closed:
            raise DestinationUnavailable("the publisher is closed")
        url = self._target.url_for(message)
        headers, body = request_headers(message, self._wire, reserved=self._reserved)
        if self._signer is not None:
            headers += self._signer.headers(message.message_id, body)
        try:
            answer = await self._exchanges.post(url, headers, body)
        except Exception as error:  # noqa: BLE001 - the table has a row for each, bugs included
            # Not chained: the client's texts name the whole URL, which may hold a secret.
            where = f"{url.host_subcomponent}:{url.port}"
            raise translated(error, CLIENT_ERRORS, where) from None
        if problem := problem_of(answer.status, answer.headers, self._target):
            raise problem

    async def close(self) -> None:
        """Close the connections."""
        self._closed = True
        await self._exchanges.close()


def problem_of(status: int, headers: Mapping[str, str], target: Target) -> PublishError | None:
    """What a status means, as the exception to raise. The answer's own text is never used."""
    if status in TAKEN:
        return None
    answer = f"answered {status} {_phrase(status)}".rstrip()
    if HTTPStatus.MULTIPLE_CHOICES <= status < HTTPStatus.BAD_REQUEST:
        answer += ": redirects are not followed"
        if target.guarded:
            # Its host is the message's own choice.
            return PermanentError(answer)
        return RetryableError(f"{answer}; put the final URL into the settings")
    made_by_message = target.url is None
    if status in PERMANENT_STATUS or (made_by_message and status in PERMANENT_STATUS_OF_A_URL):
        return PermanentError(answer)
    if status == HTTPStatus.GONE:
        return DestinationGone(answer)
    if status in ADVICE:
        answer += f": {ADVICE[status]}"
    return RetryableError(
        answer,
        retry_after=retry_after(headers, now=datetime.now(UTC)),
        throttled=status == HTTPStatus.TOO_MANY_REQUESTS,
    )


def _phrase(status: int) -> str:
    try:
        return HTTPStatus(status).phrase
    except ValueError:
        return ""
