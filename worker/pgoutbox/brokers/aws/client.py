"""One client of AWS: made when it is first needed, and anew once its credentials are refused."""

from __future__ import annotations

import asyncio
import os
from contextlib import suppress
from functools import cache
from typing import TYPE_CHECKING, Any

from aiobotocore.config import AioConfig
from aiobotocore.session import AioSession, get_session
from botocore.loaders import create_loader

from pgoutbox._version import __version__
from pgoutbox.brokers.aws.errors import Closed, is_stale
from pgoutbox.brokers.cancelling import is_cancelled

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pgoutbox.brokers.aws.url import Place
    from pgoutbox.publisher import PublisherOptions

CLOSING_SECONDS = 1.0


class _Handle:
    """A client that is being opened or is open, and how many calls hold it."""

    def __init__(self, opening: asyncio.Task[Any]) -> None:
        self.opening = opening
        self._closing: asyncio.Task[None] | None = None
        self.users = 0
        self.dropped = False
        # Whoever waited may be gone when it fails: then nobody asks for the error.
        opening.add_done_callback(lambda task: task.cancelled() or task.exception())

    @property
    def failed(self) -> bool:
        done = self.opening.done()
        return done and (self.opening.cancelled() or self.opening.exception() is not None)

    async def close(self) -> None:
        """End its connections, whatever state it is in."""
        if not self.opening.done():
            self.opening.cancel()
            await asyncio.wait([self.opening], timeout=CLOSING_SECONDS)
        if self.opening.done() and not self.failed:
            if self._closing is None:
                self._closing = asyncio.ensure_future(self._leave(self.opening.result()))
            # Not cancelled where it takes longer: half closed, its connections would stay for ever.
            await asyncio.wait([self._closing], timeout=CLOSING_SECONDS)

    @staticmethod
    async def _leave(client: Any) -> None:  # noqa: ANN401 - the library has no types
        # What goes wrong while leaving is nobody's concern any more.
        with suppress(Exception):
            await client.__aexit__(None, None, None)


class AwsClient:
    """Calls operations of one service. Raises what the client library raises, and `Closed`.

    Credentials come from the library's own chain: environment, files, web identity, container
    or instance. It renews those that expire.
    """

    def __init__(self, place: Place, options: PublisherOptions, *, connections: int) -> None:
        self._place = place
        # One attempt: whether to try again is the worker's to decide, and it counts.
        self._config = AioConfig(
            connect_timeout=options.connect_within,
            read_timeout=options.publish_timeout,
            max_pool_connections=connections,
            retries={"total_max_attempts": 1, "mode": "standard"},
            user_agent_extra=f"pgoutbox/{__version__}",
        )
        self._current: _Handle | None = None
        self._closed = False

    async def ready(self) -> None:
        """Return once there is a client. It need not have reached the service."""
        await self._use(None, {})

    async def call(self, operation: str, /, **parameters: object) -> Mapping[str, Any]:
        """The service's answer."""
        answer: Mapping[str, Any] = await self._use(operation, parameters)
        return answer

    async def close(self) -> None:
        """Calls that are under way end with an error. May be repeated."""
        self._closed = True
        handle, self._current = self._current, None
        if handle is not None:
            await handle.close()

    async def _use(self, operation: str | None, parameters: Mapping[str, Any]) -> Any:  # noqa: ANN401 - as above
        handle = self._handle()
        handle.users += 1
        try:
            # A caller that gives up must not take the client away from the others.
            client = await asyncio.shield(handle.opening)
            return operation and await getattr(client, operation)(**parameters)
        except asyncio.CancelledError:
            if self._closed and handle.failed and not is_cancelled():
                raise Closed from None
            raise
        except Exception as error:
            if is_stale(error):
                self._drop(handle)
            raise
        finally:
            handle.users -= 1
            if handle.dropped and not handle.users:
                await handle.close()

    def _handle(self) -> _Handle:
        if self._closed:
            raise Closed
        if self._current is None or self._current.failed:
            self._current = _Handle(asyncio.ensure_future(self._open()))
        return self._current

    def _drop(self, handle: _Handle) -> None:
        handle.dropped = True
        if self._current is handle:
            self._current = None

    async def _open(self) -> Any:  # noqa: ANN401 - as above
        session = get_session()
        service = self._place.service.name
        # Reading the service's description takes a good part of a second, which the event loop
        # has better uses for: it renews leases.
        await asyncio.to_thread(_load_descriptions, session, service)
        made = session.create_client(
            service,
            region_name=self._place.region,
            endpoint_url=self._place.endpoint_url,
            config=self._config,
        )
        return await made.__aenter__()


@cache
def _loader(data_path: str | None) -> Any:  # noqa: ANN401 - as above
    """What reads the library's descriptions, and keeps them: they are the same for all clients."""
    return create_loader(data_path)


def _load_descriptions(session: AioSession, service: str) -> None:
    """Give the session a loader which has in its cache what making a client reads."""
    loader = _loader(session.get_config_variable("data_path"))
    session.register_component("data_loader", loader)
    # Credentials of a web identity are fetched by a client of the token service.
    fetches = "AWS_WEB_IDENTITY_TOKEN_FILE" in os.environ
    for name in (service, "sts") if fetches else (service,):
        loader.load_service_model(name, "service-2")
        loader.load_service_model(name, "endpoint-rule-set-1")
    for name in ("endpoints", "partitions", "sdk-default-configuration", "_retry"):
        loader.load_data(name)
