"""What stands where Google should, and answers as it is told."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import grpc
import grpc.aio
from google.pubsub_v1.types import PublishRequest, PublishResponse

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

METHOD = "/google.pubsub.v1.Publisher/Publish"


class Service:
    """Takes everything but messages whose body is the name of a status, or begins with ``bad``."""

    def __init__(self) -> None:
        self.requests: list[list[bytes]] = []
        self.taken: list[tuple[bytes, str]] = []
        self.refusal: tuple[str, str] | None = None
        """A status and words for all requests."""
        self.most, self.too_many = 1000, ""
        """How many messages it takes at once, and its words for more."""
        self.asked, self.answering = asyncio.Event(), asyncio.Event()
        """It has a request; it goes on with those that it has."""
        self.answering.set()
        self.port = 0

    async def publish(self, request: Any, context: Any) -> Any:
        bodies = [message.data for message in request.messages]
        self.requests.append(bodies)
        self.asked.set()
        await self.answering.wait()
        if len(bodies) > self.most:
            await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, self.too_many)
        if self.refusal is not None:
            status, words = self.refusal
            await context.abort(grpc.StatusCode[status], words)
        for body in bodies:
            if body.startswith(b"bad"):
                await context.abort(grpc.StatusCode.INVALID_ARGUMENT, "the server's own words")
            if body.decode() in grpc.StatusCode.__members__:
                await context.abort(grpc.StatusCode[body.decode()], "the server's own words")
            if body == b"short":
                return PublishResponse.pb()()
            if body == b"nameless":
                return PublishResponse.pb()(message_ids=[""] * len(bodies))
        self.taken += [(message.data, message.ordering_key) for message in request.messages]
        return PublishResponse.pb()(message_ids=[str(i) for i in range(len(bodies))])

    @property
    def url(self) -> str:
        return f"pubsub://project/topic?emulator=127.0.0.1:{self.port}"


@asynccontextmanager
async def serving() -> AsyncIterator[Service]:
    """One that listens while the context lasts."""
    service = Service()
    handler = grpc.unary_unary_rpc_method_handler(
        service.publish,
        request_deserializer=PublishRequest.pb().FromString,
        response_serializer=PublishResponse.pb().SerializeToString,
    )
    _, name, method = METHOD.split("/")
    server = grpc.aio.server()
    server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler(name, {method: handler})])
    service.port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    try:
        yield service
    finally:
        await server.stop(None)
