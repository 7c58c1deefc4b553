"""A connection to RabbitMQ with one channel in confirm mode, over the client aiormq."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import aiormq
from aiormq.abc import ChannelFrame
from aiormq.connection import TransportFactory
from yarl import URL

from pgoutbox.brokers.rabbitmq.errors import unconnected
from pgoutbox.brokers.rabbitmq.frames import Framing
from pgoutbox.errors import DestinationUnavailable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aiormq.channel import Channel

    from pgoutbox.brokers.rabbitmq.url import Target

CLOSE_SECONDS = 1.0
"""How long the broker may take to agree that a connection ends."""


class Outgoing(NamedTuple):
    """One message, ready to be sent."""

    message_id: str
    frames: Sequence[bytes]


class Sent(NamedTuple):
    """Messages that were handed to the connection together."""

    confirms: Sequence[asyncio.Future[object]]
    """One each: the client's exception, or any result for a message that was taken."""
    written: asyncio.Future[None]
    """Done when the operating system has them."""

    @property
    def answered(self) -> bool:
        """Whether it is known of all of them what became of them."""
        return all(confirm.done() for confirm in self.confirms)

    def errors(self) -> list[BaseException | None]:
        """What became of each by now; TimeoutError where nothing is known."""
        return [_error(confirm) for confirm in self.confirms]


def _error(confirm: asyncio.Future[object]) -> BaseException | None:
    if not confirm.done():
        return TimeoutError()
    return asyncio.CancelledError() if confirm.cancelled() else confirm.exception()


class Socket(TransportFactory):
    """Opens the socket, and remembers it: the client cannot be told to let go of one."""

    def __init__(self, target: Target) -> None:
        self._target = target
        self._writer: asyncio.StreamWriter | None = None

    async def create(
        self,
        url: URL,  # noqa: ARG002 - the client's interface
        **_: Any,  # noqa: ANN401 - as above
    ) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Connect."""
        reader, self._writer = await asyncio.open_connection(
            self._target.host,
            self._target.port,
            ssl=self._target.tls,
            # Else a peer that is silent could hold up the end of a connection for half a minute.
            ssl_shutdown_timeout=None if self._target.tls is None else CLOSE_SECONDS,
        )
        return reader, self._writer

    def abort(self) -> None:
        """Drop the connection, and what is still to be sent."""
        if self._writer is not None:
            self._writer.transport.abort()


class _Connection(aiormq.Connection):
    """Takes what is to be written without waiting; the destination's concurrency is the limit."""

    FRAME_BUFFER_SIZE = 0


class RabbitmqLink:
    """One connection and its channel. The channel is replaced where the broker closes it."""

    def __init__(self, connection: aiormq.Connection, socket: Socket, target: Target) -> None:
        self._connection = connection
        self._socket = socket
        self._target = target
        self._channel: Channel | None = None
        self.framing = Framing(channel=0, frame_max=0, exchange=target.exchange)
        self.last_confirm = 0.0
        """When the broker last confirmed something, by the event loop's clock."""

    @property
    def connected(self) -> bool:
        """Whether the connection is open, whatever the channel is."""
        return self._connection.is_opened

    @property
    def usable(self) -> bool:
        """Whether messages can be sent."""
        return self.connected and self._channel is not None and not self._channel.is_closed

    @property
    def blocked(self) -> bool:
        """Whether the broker said that it reads nothing for now: it is out of memory or disk."""
        waiting = self._connection.ready()
        try:
            waiting.send(None)
        except StopIteration:
            return False
        waiting.close()
        return True

    async def open_channel(self) -> None:
        """Have a channel that works. Raises what the client raises."""
        # Without the flag a message that no queue took would look like one that was taken.
        channel = await self._connection.channel(on_return_raises=True)
        self._channel = cast("Channel", channel)
        self.framing = Framing(
            channel=self._channel.number,
            frame_max=self._connection.connection_tune.frame_max,
            exchange=self._target.exchange,
        )

    async def replace_channel(self, *, seconds: float) -> None:
        """As `open_channel`. Raises `DestinationUnavailable`, without a connection then."""
        try:
            async with asyncio.timeout(seconds):
                await self.open_channel()
        except BaseException as error:
            self.abort()
            if isinstance(error, Exception):
                raise unconnected(error, self._target.where) from None
            raise

    def send(self, messages: Sequence[Outgoing]) -> Sent:
        """Send messages. Does not wait for anything. Only while it is `usable`."""
        channel = self._channel
        if channel is None:
            raise DestinationUnavailable(f"{self._target.where}: there is no channel")
        # As the client's own `basic_publish` does it, for all of them at once: the broker counts
        # what it receives, so nothing may come between the count and the queue.
        confirms: list[asyncio.Future[object]] = []
        for message_id, _ in messages:
            channel.delivery_tag += 1
            confirm = channel.create_future()
            channel.confirmations[channel.delivery_tag] = confirm
            channel.message_id_delivery_tag[message_id] = channel.delivery_tag
            confirms.append(confirm)
        written: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        payload = b"".join(part for _, frames in messages for part in frames)
        self._connection.write_queue.put_nowait(
            ChannelFrame(payload=payload, should_close=False, drain_future=written)
        )
        return Sent(confirms, written)

    def forget(self, messages: Sequence[Outgoing]) -> None:
        """Nobody waits for the answers to these any more."""
        if self._channel is not None:
            for message_id, _ in messages:
                self._channel.message_id_delivery_tag.pop(message_id, None)

    def abort(self) -> None:
        """Drop the connection, and what is still to be sent."""
        self._socket.abort()

    async def close(self) -> None:
        """Say goodbye, or leave without an answer."""
        for _ in range(2):
            # The client's exceptions and, where it was cancelled itself, a cancellation.
            task = asyncio.ensure_future(self._connection.close())
            await asyncio.wait([task], timeout=CLOSE_SECONDS)
            self._socket.abort()
            if task.done():
                with suppress(BaseException):
                    task.result()
                return
            task.cancel()


async def connect(target: Target, *, seconds: float) -> RabbitmqLink:
    """Connect and open a channel. Raises `DestinationUnavailable`."""
    socket = Socket(target)
    url = URL.build(
        scheme="amqp" if target.tls is None else "amqps",
        user=target.user,
        password=target.password,
        host=target.host,
        port=target.port,
        query={"heartbeat": str(target.heartbeat), "name": "pgoutbox"},
    )
    connection = _Connection(url, transport_factory=socket)
    connection.vhost = target.vhost
    link = RabbitmqLink(connection, socket, target)
    try:
        async with asyncio.timeout(seconds):
            await connection.connect()
            await link.open_channel()
    except BaseException as error:
        link.abort()
        if isinstance(error, Exception):
            raise unconnected(error, target.where) from None
        raise
    return link
