"""A connection to RabbitMQ with one channel in confirm mode, over the client aiormq."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Any, cast

import aiormq
from aiormq.abc import ChannelFrame
from aiormq.connection import TransportFactory
from yarl import URL

from pgoutbox.brokers.rabbitmq.errors import unconnected
from pgoutbox.brokers.rabbitmq.frames import Framing
from pgoutbox.brokers.reconnect import cut

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aiormq.channel import Channel

    from pgoutbox.brokers.rabbitmq.url import Target
    from pgoutbox.brokers.sending import Command

CLOSE_SECONDS = 0.5
"""How long the broker may take to agree that a connection ends, and then the client."""

Confirm = asyncio.Future[object]


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
        # Nothing counts as written that the operating system does not have.
        self._writer.transport.set_write_buffer_limits(high=0)
        return reader, self._writer

    def abort(self) -> None:
        """Drop the connection, and what is still to be sent."""
        cut(self._writer)


class _Connection(aiormq.Connection):
    """Takes what is to be written without waiting; the destination's concurrency is the limit."""

    FRAME_BUFFER_SIZE = 0


class RabbitmqLink:
    """One channel of a connection. Where the broker closes it, the connection gets another."""

    def __init__(
        self, connection: aiormq.Connection, channel: Channel, socket: Socket, target: Target
    ) -> None:
        self._connection = connection
        self._channel = channel
        self._socket = socket
        self._target = target
        self.framing = Framing(
            channel=channel.number,
            frame_max=connection.connection_tune.frame_max,
            exchange=target.exchange,
        )
        self.last_confirm = 0.0
        """When the broker last confirmed something, by the event loop's clock."""

    @property
    def connected(self) -> bool:
        """Whether the connection is open, whatever the channel is."""
        return self._connection.is_opened

    @property
    def usable(self) -> bool:
        """Whether messages can be sent."""
        return self.connected and not self._channel.is_closed

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

    async def another(self, *, seconds: float) -> RabbitmqLink:
        """Another channel of the same connection.

        Raises `DestinationUnavailable`, and then the connection has ended as well.
        """
        return await _opened(self._connection, self._socket, self._target, seconds=seconds)

    def silent_since(self, when: float) -> bool:
        """Whether nothing was confirmed since, and not because the broker is `blocked`."""
        return self.last_confirm < when and not self.blocked

    def send(self, commands: Sequence[Command]) -> tuple[Sequence[Confirm], asyncio.Future[None]]:
        """Send messages. Does not wait for anything. Only while it is `usable`.

        The futures hold the client's exception, or the broker's frame. The last one is done when
        the operating system has them.
        """
        channel = self._channel
        # As the client's own `basic_publish` does it, for all of them at once: the broker counts
        # what it receives, so nothing may come between the count and the queue.
        confirms: list[Confirm] = []
        for command in commands:
            channel.delivery_tag += 1
            confirm = channel.create_future()
            channel.confirmations[channel.delivery_tag] = confirm
            channel.message_id_delivery_tag[command.key] = channel.delivery_tag
            confirms.append(confirm)
        written: asyncio.Future[None] = channel.create_future()
        payload = b"".join(part for command in commands for part in command.parts)
        self._connection.write_queue.put_nowait(
            ChannelFrame(payload=payload, should_close=False, drain_future=written)
        )
        return confirms, written

    def forget(self, commands: Sequence[Command]) -> None:
        """Nobody waits for the answers to these any more."""
        for command in commands:
            self._channel.message_id_delivery_tag.pop(command.key, None)

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
    return await _opened(connection, socket, target, seconds=seconds)


async def _opened(
    connection: aiormq.Connection, socket: Socket, target: Target, *, seconds: float
) -> RabbitmqLink:
    try:
        async with asyncio.timeout(seconds):
            if not connection.is_opened:
                await connection.connect()
            # Without the flag a message that no queue took would look like one that was taken.
            channel = await connection.channel(on_return_raises=True)
    except BaseException as error:
        socket.abort()
        if isinstance(error, Exception):
            raise unconnected(error, target.where) from None
        raise
    return RabbitmqLink(connection, cast("Channel", channel), socket, target)
