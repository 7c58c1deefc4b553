"""Every error of the client is one of the four."""

from __future__ import annotations

import asyncio
import inspect
import ssl
from typing import Any
from unittest import mock

import aiohttp
import pytest
from aiohttp.client_reqrep import ConnectionKey
from aiohttp.http import HttpProcessingError
from multidict import CIMultiDict, CIMultiDictProxy
from yarl import URL

from pgoutbox.brokers import answers
from pgoutbox.brokers.http.exchange import Exchanges
from pgoutbox.brokers.http.guard import AddressRefused
from pgoutbox.brokers.http.publisher import CLIENT_ERRORS, open_http
from pgoutbox.errors import DestinationUnavailable, PermanentError, PublishError, RetryableError
from pgoutbox.publisher import PublisherOptions
from pgoutbox.testing import make_message

SECRET = URL("http://host.example/hook?sig=hunter2")
KEY = ConnectionKey("host.example", 80, False, True, None, None, None)  # noqa: FBT003
REQUEST = aiohttp.RequestInfo(SECRET, "POST", CIMultiDictProxy(CIMultiDict()), SECRET)
REFUSED = ConnectionRefusedError(111, "Connection refused")

EXAMPLES: list[tuple[Exception, type[PublishError]]] = [
    (aiohttp.ClientConnectorError(KEY, REFUSED), DestinationUnavailable),
    (aiohttp.ClientConnectorDNSError(KEY, OSError(-2, "unknown")), DestinationUnavailable),
    (aiohttp.ClientConnectorSSLError(KEY, ssl.SSLError(1, "bad")), DestinationUnavailable),
    (
        aiohttp.ClientConnectorCertificateError(KEY, ssl.CertificateError("expired")),
        DestinationUnavailable,
    ),
    (aiohttp.ServerFingerprintMismatch(b"a", b"b", "host", 443), DestinationUnavailable),
    (aiohttp.ConnectionTimeoutError(f"timeout to {SECRET}"), DestinationUnavailable),
    (aiohttp.SocketTimeoutError(f"timeout from {SECRET}"), RetryableError),
    (aiohttp.ServerTimeoutError(str(SECRET)), RetryableError),
    (aiohttp.ServerDisconnectedError(), RetryableError),
    (aiohttp.ServerConnectionError(str(SECRET)), RetryableError),
    (aiohttp.ClientConnectionResetError(104, str(SECRET)), RetryableError),
    (aiohttp.ClientOSError(32, f"Can not write request body for {SECRET}"), RetryableError),
    (aiohttp.ClientConnectionError(str(SECRET)), RetryableError),
    (aiohttp.ClientPayloadError(str(SECRET)), RetryableError),
    (aiohttp.ClientResponseError(REQUEST, (), status=400, message="hunter2"), RetryableError),
    (aiohttp.ContentTypeError(REQUEST, ()), RetryableError),
    (aiohttp.InvalidURL(SECRET), RetryableError),
    (aiohttp.NonHttpUrlClientError(SECRET), RetryableError),
    (HttpProcessingError(message="hunter2"), RetryableError),
    (AddressRefused(str(SECRET)), PermanentError),
    (aiohttp.ClientError(str(SECRET)), RetryableError),
    (TimeoutError(str(SECRET)), RetryableError),
    (ConnectionResetError(104, str(SECRET)), RetryableError),
    (ValueError("Forbidden control character detected in headers: hunter2"), RetryableError),
    (UnicodeEncodeError("ascii", "ü", 0, 1, "hunter2"), RetryableError),
    (RuntimeError("hunter2"), RetryableError),
]


@pytest.mark.parametrize(
    ("error", "meaning"), EXAMPLES, ids=[type(error).__name__ for error, _ in EXAMPLES]
)
async def test_an_error_of_the_client_becomes_one_of_the_four_without_its_words(
    error: Exception, meaning: type[PublishError]
) -> None:
    publisher = await open_http(str(SECRET), options=PublisherOptions(destination="hook"))
    with (
        mock.patch.object(Exchanges, "post", side_effect=error),
        pytest.raises(PublishError) as caught,
    ):
        await publisher.publish(make_message())
    await publisher.close()
    assert type(caught.value) is meaning
    assert "hunter2" not in repr(caught.value)
    assert str(caught.value).startswith("host.example:80: ")
    assert caught.value.__cause__ is None
    assert caught.value.__suppress_context__


async def test_a_bug_is_told_to_whoever_reads_the_log_once(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(answers, "_told", set())
    publisher = await open_http(str(SECRET), options=PublisherOptions(destination="hook"))
    for _ in range(2):
        with (
            mock.patch.object(Exchanges, "post", side_effect=ValueError("odd")),
            pytest.raises(RetryableError),
        ):
            await publisher.publish(make_message())
    await publisher.close()
    (record,) = caplog.records
    assert "unexpected ValueError" in record.getMessage()


def test_the_special_stands_before_the_general() -> None:
    kinds = [kind for kind, _, _ in CLIENT_ERRORS]
    for place, kind in enumerate(kinds):
        hidden = [later.__name__ for later in kinds[place + 1 :] if issubclass(later, kind)]
        assert not hidden, f"{kind.__name__} hides {hidden}"


def test_every_row_of_the_table_has_an_example() -> None:
    reached = set()
    for error, _ in EXAMPLES:
        reached.add(next(kind for kind, _, _ in CLIENT_ERRORS if isinstance(error, kind)))
    assert reached == {kind for kind, _, _ in CLIENT_ERRORS}


def test_no_error_that_the_client_has_falls_through_the_table() -> None:
    covered = tuple(kind for kind, _, _ in CLIENT_ERRORS)
    known: list[tuple[str, Any]] = inspect.getmembers(aiohttp.client_exceptions, inspect.isclass)
    errors = [kind for _, kind in known if issubclass(kind, aiohttp.ClientError)]
    assert len(errors) > 20
    assert all(issubclass(kind, covered) for kind in errors)


async def test_a_cancellation_is_none_of_them() -> None:
    publisher = await open_http(str(SECRET), options=PublisherOptions(destination="hook"))
    with (
        mock.patch.object(Exchanges, "post", side_effect=asyncio.CancelledError),
        pytest.raises(asyncio.CancelledError),
    ):
        await publisher.publish(make_message())
    await publisher.close()
