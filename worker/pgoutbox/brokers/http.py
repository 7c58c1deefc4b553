"""``http://`` and ``https://``: one POST per message."""

from __future__ import annotations

import asyncio
import io
import re
from base64 import b64encode
from datetime import UTC, datetime
from http import HTTPStatus
from typing import TYPE_CHECKING

import aiohttp
from yarl import URL

from pgoutbox._version import __version__
from pgoutbox.brokers.http_headers import request_headers, retry_after
from pgoutbox.errors import (
    DestinationUnavailable,
    InvalidDestination,
    PermanentError,
    PublishError,
    RetryableError,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pgoutbox.message import ClaimedMessage
    from pgoutbox.publisher import PublisherOptions

WHOLE_BODY = 256 * 1024
"""Bytes of a payload that are written at once."""
MAX_ANSWER = 64 * 1024
"""Bytes of an answer's body that are read before its connection is given up."""
ANSWER_SECONDS = 1.0
"""How long the rest of an answer's body may take before its connection is given up."""
# Common servers close a connection that was idle for five seconds: leave before they do, or a
# request may meet the end of its connection.
IDLE_SECONDS = 4.0

LAST_5XX = 599
RETRYABLE_STATUS = frozenset(
    {
        HTTPStatus.REQUEST_TIMEOUT,
        HTTPStatus.TOO_EARLY,
        HTTPStatus.TOO_MANY_REQUESTS,
    }
)

# The client's errors, the special before the general, and what each means here.
CLIENT_ERRORS: tuple[tuple[type[Exception], type[PublishError], str], ...] = (
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
    (aiohttp.ClientResponseError, RetryableError, "the answer is not HTTP"),
    # The request cannot be made, today or later.
    (aiohttp.InvalidURL, PermanentError, "the URL cannot be requested"),
    (aiohttp.NonHttpUrlClientError, PermanentError, "the URL is not an HTTP URL"),
    (aiohttp.ClientError, RetryableError, "the request failed"),
    (TimeoutError, RetryableError, "no answer in time"),
    (OSError, RetryableError, "the connection broke"),
    (ValueError, PermanentError, "the message cannot be written as a request"),
)


async def open_http(url: str, /, *, options: PublisherOptions) -> HttpPublisher:
    """Open an ``http://`` or ``https://`` URL, without connecting to it.

    The path and the query are sent as they are written. A user and a password in the URL
    become Basic authentication.
    """
    # The parser's own words may repeat the URL with its password.
    if re.fullmatch(r"[!-~]+", url) is None:
        raise InvalidDestination(
            options.destination, "the URL has blanks or non-ASCII characters; percent-encode them"
        )
    try:
        target = URL(url, encoded=True)
        host = target.host
        _ = target.port
    except ValueError:
        raise InvalidDestination(
            options.destination, "the URL's host or port is not well-formed"
        ) from None
    if not host:
        raise InvalidDestination(options.destination, "the URL names no host")
    return HttpPublisher(target, options)


class HttpPublisher:
    """Posts to one URL. Follows no redirect, keeps no cookie, uses no proxy of the environment."""

    def __init__(self, url: URL, options: PublisherOptions) -> None:
        own_headers = {"User-Agent": f"pgoutbox/{__version__}", "Accept-Encoding": "identity"}
        self._reserved: frozenset[str] = frozenset()
        if url.user is not None or url.password is not None:
            pair = f"{url.user or ''}:{url.password or ''}".encode()
            own_headers["Authorization"] = f"Basic {b64encode(pair).decode()}"
            self._reserved = frozenset({"authorization"})
        self._where = f"{url.host_subcomponent}:{url.port}"
        self._url = url.with_user(None).with_fragment(None)
        # The worker cancels at the publish timeout. Half of it for connecting leaves time to
        # report that nothing was sent, which costs no attempt.
        connecting = options.publish_timeout / 2
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(
                limit=options.concurrency, keepalive_timeout=IDLE_SECONDS
            ),
            timeout=aiohttp.ClientTimeout(connect=connecting, sock_connect=connecting),
            headers=own_headers,
            cookie_jar=aiohttp.DummyCookieJar(),
            auto_decompress=False,
            trust_env=False,
        )

    async def publish(self, message: ClaimedMessage) -> None:
        """POST the payload; a 2xx answer takes the message."""
        headers = request_headers(message, reserved=self._reserved)
        try:
            async with self._session.post(
                self._url, data=_sendable(message.body), headers=headers, allow_redirects=False
            ) as response:
                await _read_rest(response)
        except (aiohttp.ClientError, OSError, ValueError) as error:
            # Not chained: the client's texts name the whole URL, which may hold a secret.
            raise self._translated(error) from None
        if problem := problem_of(response.status, response.headers):
            raise problem

    async def close(self) -> None:
        """Close the connections."""
        await self._session.close()

    def _translated(self, error: Exception) -> PublishError:
        for kind, meaning, text in CLIENT_ERRORS:
            if isinstance(error, kind):
                return meaning(f"{self._where}: {text}")
        raise error


def _sendable(body: bytes) -> bytes | io.BytesIO:
    """What is big goes out in pieces, and the event loop turns between them."""
    return body if len(body) <= WHOLE_BODY else io.BytesIO(body)


async def _read_rest(response: aiohttp.ClientResponse) -> None:
    """Read a short body to its end, so that the connection can be used again.

    The status has decided already: a body that is long, slow or broken costs only the
    connection, which leaving the response's context closes.
    """
    left = MAX_ANSWER
    try:
        async with asyncio.timeout(ANSWER_SECONDS):
            while left > 0 and (chunk := await response.content.read(left)):
                left -= len(chunk)
    except (aiohttp.ClientError, OSError):
        response.close()


def problem_of(status: int, headers: Mapping[str, str]) -> PublishError | None:
    """What a status means, as the exception to raise. The answer's own text is never used."""
    if HTTPStatus.OK <= status < HTTPStatus.MULTIPLE_CHOICES:
        return None
    answer = f"answered {status} {_phrase(status)}".rstrip()
    if status in RETRYABLE_STATUS or HTTPStatus.INTERNAL_SERVER_ERROR <= status <= LAST_5XX:
        return RetryableError(answer, retry_after=retry_after(headers, now=datetime.now(UTC)))
    if HTTPStatus.MULTIPLE_CHOICES <= status < HTTPStatus.BAD_REQUEST:
        return PermanentError(
            f"{answer}: redirects are not followed; put the final URL into the settings"
        )
    return PermanentError(answer)


def _phrase(status: int) -> str:
    try:
        return HTTPStatus(status).phrase
    except ValueError:
        return ""
