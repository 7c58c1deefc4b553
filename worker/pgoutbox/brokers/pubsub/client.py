"""Google's generated client, as far as publishing needs it.

Not the client with futures and threads: that one batches and repeats by itself, and after a failure
it refuses an ordering key until it is told to go on. Here a request is sent once, and its key is
as good as any other the next time.
"""

from __future__ import annotations

import asyncio
import threading
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import google.auth
import grpc.aio
from google.api_core.exceptions import GoogleAPICallError
from google.auth.exceptions import DefaultCredentialsError, GoogleAuthError
from google.pubsub_v1 import PublisherAsyncClient
from google.pubsub_v1.services.publisher.transports import PublisherGrpcAsyncIOTransport
from google.pubsub_v1.types import PublishRequest, PubsubMessage

from pgoutbox.brokers.answers import Row, translated
from pgoutbox.brokers.cancelling import is_cancelled
from pgoutbox.brokers.pubsub.answers import (
    NO_CONNECTION,
    NO_CREDENTIALS,
    REFUSED_CREDENTIALS,
    answered,
)
from pgoutbox.errors import DestinationUnavailable, PublishError, RetryableError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

# What is beneath the generated classes, for a fifth of their time.
Proto = PubsubMessage.pb()
RequestProto = PublishRequest.pb()

CLOSED = "the publisher is closed"
A_BUG = "the client failed in a way that it should not"
# No request was sent.
CONNECT_ERRORS: Sequence[Row] = (
    (TimeoutError, DestinationUnavailable, "connecting took too long"),
    (ConnectionError, DestinationUnavailable, NO_CONNECTION),
    (DefaultCredentialsError, DestinationUnavailable, NO_CREDENTIALS),
    (GoogleAuthError, DestinationUnavailable, REFUSED_CREDENTIALS),
    (grpc.aio.UsageError, DestinationUnavailable, CLOSED),
    (Exception, DestinationUnavailable, A_BUG),
)
# In place of an answer, and of a status.
REQUEST_ERRORS: Sequence[Row] = (
    (GoogleAuthError, DestinationUnavailable, REFUSED_CREDENTIALS),
    (grpc.aio.UsageError, DestinationUnavailable, CLOSED),
    (Exception, RetryableError, A_BUG),
)

CLOSE_SECONDS = 1.0
READY, FAILED = "READY", "TRANSIENT_FAILURE"
# A server that comes back is found within a second or two, and a connection that died without a
# word within forty.
CHANNEL_OPTIONS = [
    ("grpc.max_send_message_length", -1),
    ("grpc.initial_reconnect_backoff_ms", 250),
    ("grpc.max_reconnect_backoff_ms", 2_000),
    ("grpc.keepalive_time_ms", 30_000),
    ("grpc.keepalive_timeout_ms", 10_000),
]


class Client:
    """A channel to ``host``, made at the first use: secured, or else to an emulator."""

    def __init__(self, host: str, *, secure: bool) -> None:
        self._host = host
        self._secure = secure
        self._credentials: asyncio.Future[Any] | None = None
        self._channel: Any = None
        self._stub: PublisherAsyncClient | None = None
        self._closed = False

    async def connected(self, patience: float) -> None:
        """Return once the channel is ready; `DestinationUnavailable` says why it is not."""
        try:
            async with asyncio.timeout(patience):
                if self._channel is None:
                    self._check_open()
                    self._open(await self._credentials_found() if self._secure else None)
                await self._ready()
        except asyncio.CancelledError:
            if self._ended_by_close():
                raise DestinationUnavailable(f"{self._host}: {CLOSED}") from None
            raise
        except Exception as error:  # noqa: BLE001 - a table tells what it means
            raise translated(error, CONNECT_ERRORS, self._host) from None

    @staticmethod
    def message(body: bytes, attributes: Mapping[str, str], ordering_key: str) -> Any:  # noqa: ANN401 - generated, no types
        """A message for `publish`; raises ValueError for text that is not Unicode."""
        return Proto(data=body, attributes=attributes, ordering_key=ordering_key)

    async def publish(
        self, topic: str, messages: Sequence[Any], *, within: float
    ) -> PublishError | None:
        """One request, and the one answer to all its messages."""
        assert self._stub is not None  # noqa: S101 - `connected` comes first
        request = PublishRequest.wrap(RequestProto(topic=topic, messages=messages))
        try:
            # None: the client's own retries would go on after our timeout was told.
            answer = await self._stub.publish(request, retry=None, timeout=within)
        except asyncio.CancelledError:
            if self._ended_by_close():
                return RetryableError(f"{self._host}: the publisher was closed before the answer")
            raise
        except GoogleAPICallError as error:
            code = error.grpc_status_code
            return answered("" if code is None else code.name, error.message, self._host)
        except Exception as error:  # noqa: BLE001 - a table tells what it means
            return translated(error, REQUEST_ERRORS, self._host)
        if len(answer.message_ids) != len(messages) or not all(answer.message_ids):
            return RetryableError(f"{self._host}: the answer has not one id for each message")
        return None

    async def close(self) -> None:
        """Close the channel; requests on it end at once."""
        self._closed = True
        if self._channel is not None:
            with suppress(TimeoutError):
                async with asyncio.timeout(CLOSE_SECONDS):
                    await self._channel.close()

    def _ended_by_close(self) -> bool:
        """A closed channel ends its calls as if they, and not it, had been cancelled."""
        return self._closed and not is_cancelled()

    def _check_open(self) -> None:
        if self._closed:
            raise grpc.aio.UsageError(CLOSED)

    async def _credentials_found(self) -> Any:  # noqa: ANN401 - the library's
        # Asking the metadata server may take long, and is not begun anew by each publish.
        asked = self._credentials
        if asked is None or (asked.done() and asked.exception() is not None):
            asked = self._credentials = in_thread(_find_credentials)
        return await asyncio.shield(asked)

    def _open(self, credentials: Any) -> None:  # noqa: ANN401 - the library's
        self._check_open()
        if credentials is None:
            options = [*CHANNEL_OPTIONS, ("grpc.enable_http_proxy", 0)]
            channel = grpc.aio.insecure_channel(self._host, options=options)
            transport = PublisherGrpcAsyncIOTransport(channel=channel)
        else:
            transport = PublisherGrpcAsyncIOTransport(
                host=self._host,
                credentials=credentials,
                always_use_jwt_access=True,
                channel=_secure_channel,
            )
        self._channel = transport.grpc_channel
        self._stub = PublisherAsyncClient(transport=transport)

    async def _ready(self) -> None:
        while True:
            state = self._channel.get_state(try_to_connect=True)
            if state.name == READY:
                return
            if state.name == FAILED:
                raise ConnectionError
            await self._channel.wait_for_state_change(state)


def _secure_channel(host: str, **arguments: Any) -> Any:  # noqa: ANN401 - the library's
    """What the transport calls to have its channel, with options of ours."""
    return PublisherGrpcAsyncIOTransport.create_channel(
        host, **(arguments | {"options": CHANNEL_OPTIONS})
    )


def _find_credentials() -> Any:  # noqa: ANN401 - the library's
    credentials, _ = google.auth.default(default_scopes=PublisherGrpcAsyncIOTransport.AUTH_SCOPES)
    return credentials


def in_thread(work: Callable[[], Any]) -> asyncio.Future[Any]:
    """The result of blocking work, in a thread that keeps nobody from leaving."""
    loop = asyncio.get_running_loop()
    future = loop.create_future()

    def settle(result: Any, error: Exception | None) -> None:  # noqa: ANN401 - whatever it was
        if future.done():
            return
        if error is None:
            future.set_result(result)
        else:
            future.set_exception(error)
            future.exception()  # it may be that nobody waits any more

    def run() -> None:
        result, error = None, None
        try:
            result = work()
        except Exception as problem:  # noqa: BLE001 - raised where the result is awaited
            error = problem
        with suppress(RuntimeError):  # the loop was closed meanwhile
            loop.call_soon_threadsafe(settle, result, error)

    threading.Thread(target=run, name="pgoutbox-pubsub", daemon=True).start()
    return future
