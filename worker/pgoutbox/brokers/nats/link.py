"""A connection to NATS with one inbox for all acknowledgements, over the client nats-py."""

from __future__ import annotations

import asyncio
import itertools
import json
import sys
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple

from nats import errors
from nats.aio.client import Client

from pgoutbox.brokers.nats.errors import Denied, NoAnswers, Refused, unconnected
from pgoutbox.brokers.reconnect import cut

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from nats.aio.msg import Msg

    from pgoutbox.brokers.nats.url import Target
    from pgoutbox.brokers.sending import Command

CLOSE_SECONDS = 1.0
"""How long a connection may take to end."""
PING_SECONDS = 10
"""A server that leaves two pings in a row without an answer is taken for dead."""
NO_RESPONDERS = "503"

Answer = dict[str, Any]


class Pending(NamedTuple):
    """A message that was sent and not answered."""

    subject: str
    answer: asyncio.Future[Answer]


class NatsClient(Client):
    """The client, with what it lacks: to insist on TLS, to send many at once, to let go at once."""

    def __init__(self, *, insist_on_tls: bool, on_answer: Callable[[str, bytes], None]) -> None:
        super().__init__()
        self._insist_on_tls = insist_on_tls
        self._on_answer = on_answer
        self.inbox = ""
        """What the subjects of answers begin with, once it is known."""

    async def _process_msg(
        self, sid: int, subject: bytes, reply: bytes, data: bytes, headers: bytes
    ) -> None:
        # A short cut for what is nearly all that comes in: the way through the subscription, its
        # queue and its task takes longer than all else that becomes of an answer.
        if not headers and self.inbox and subject.startswith(self.inbox.encode()):
            self._on_answer(subject.decode(), data)
        else:
            await super()._process_msg(sid, subject, reply, data, headers)

    def _connect_command(self) -> bytes:
        # Before the password is sent, and not after.
        if self._insist_on_tls and not self._server_info.get("tls_required"):
            raise errors.SecureConnWantedError
        return super()._connect_command()

    def send(self, data: bytes) -> asyncio.Future[None]:
        """Hand these commands to the flusher; done when the operating system has them.

        Not by the client's own `publish`: that would do so message by message, and its way to the
        flusher may swallow a cancellation.
        """
        written: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._pending.append(data)
        self._pending_data_size += len(data)
        assert self._flush_queue is not None  # noqa: S101 - it is connected
        self._flush_queue.put_nowait(written)
        return written

    def write_through(self) -> None:
        """Count nothing as written that the operating system does not have."""
        if self._writer is not None:
            self._writer.transport.set_write_buffer_limits(high=0)

    def abort(self) -> None:
        """Drop the connection, and what is still to be sent."""
        self._pending = []
        self._pending_data_size = 0
        cut(self._writer)

    @property
    def _writer(self) -> asyncio.StreamWriter | None:
        # The one that it began with, which is the socket's also under TLS.
        writer: asyncio.StreamWriter | None = getattr(self._transport, "_bare_io_writer", None)
        return writer


class NatsLink:
    """One connection. It is not made again by itself: what is sent meanwhile would be kept."""

    def __init__(self, target: Target) -> None:
        self._target = target
        self._client = NatsClient(insist_on_tls=target.tls is not None, on_answer=self._on_answer)
        self._pending: dict[str, Pending] = {}
        self._numbers = itertools.count()
        self._last_error: Exception | None = None
        self._aborted = False
        self.last_answer = 0.0
        """When an answer came last, by the event loop's clock."""

    @property
    def usable(self) -> bool:
        """Whether messages can be sent."""
        return self._client.is_connected and not self._aborted

    @property
    def max_payload(self) -> int:
        """The most bytes of headers and payload that the server takes."""
        return self._client.max_payload

    async def connect(self, seconds: float) -> None:
        """Connect to one of the servers. Raises `DestinationUnavailable`."""
        try:
            async with asyncio.timeout(seconds):
                await self._connect(seconds)
        except Exception as error:  # noqa: BLE001 - whatever it is, there is no connection
            raise unconnected(self._reason(error), self._target.where) from None

    async def _connect(self, seconds: float) -> None:
        target = self._target
        # Of several servers each has its turn.
        login: dict[str, Any] = {"connect_timeout": seconds / len(target.servers)}
        if target.password is None:
            login["token"] = target.user
        else:
            login |= {"user": target.user or "", "password": target.password}
        if target.credentials is not None:
            login["user_credentials"] = str(target.credentials)
        if target.tls is not None:
            login["tls"] = target.tls
        await self._client.connect(
            [f"nats://{server}" for server in target.servers],
            name="pgoutbox",
            allow_reconnect=False,
            max_reconnect_attempts=1,
            reconnect_time_wait=0,
            ping_interval=PING_SECONDS,
            error_cb=self._on_error,
            closed_cb=self._on_closed,
            inbox_prefix=target.inbox_prefix,
            # No limit: at its own the client would wait for as long as the server reads nothing.
            pending_size=sys.maxsize,
            flusher_queue_size=0,
            **login,
        )
        self._client.write_through()
        self._client.inbox = self._client.new_inbox()
        await self._client.subscribe(f"{self._client.inbox}.*", cb=self._on_message)
        # A ping overtakes what is not written yet. The answer to one that does not comes after what
        # the server has against the subscription.
        await self._client.send(b"")
        await self._client.flush(max(int(seconds), 1))
        if isinstance(self._last_error, NoAnswers):
            raise self._last_error

    def reply(self) -> str:
        """A subject for the answer to one message."""
        return f"{self._client.inbox}.{next(self._numbers)}"

    def silent_since(self, when: float) -> bool:
        """Whether no answer came since."""
        return self.last_answer < when

    def send(
        self, commands: Sequence[Command]
    ) -> tuple[Sequence[asyncio.Future[Answer]], asyncio.Future[None]]:
        """Send messages. Does not wait for anything. Only while it is `usable`.

        The futures hold an error where no answer comes. The last one is done when the operating
        system has them.
        """
        loop = asyncio.get_running_loop()
        waiting = []
        for reply, subject, _ in commands:
            answer: asyncio.Future[Answer] = loop.create_future()
            # Somebody who is cancelled does not look at it, and that is no news.
            answer.add_done_callback(_look)
            self._pending[reply] = Pending(subject, answer)
            waiting.append(answer)
        payload = b"".join(part for command in commands for part in command.parts)
        return waiting, self._client.send(payload)

    def forget(self, commands: Sequence[Command]) -> None:
        """Nobody waits for the answers to these any more."""
        for command in commands:
            self._pending.pop(command.key, None)

    async def duplicate_window(self, stream: str, seconds: float) -> float | None:
        """For how many seconds the stream knows message ids; None where that cannot be had."""
        try:
            info = await self._client.jetstream(timeout=seconds).stream_info(stream)
        except Exception:  # noqa: BLE001 - nice to know, and not worth a message
            return None
        return info.config.duplicate_window

    def abort(self) -> None:
        """Drop the connection, and what is still to be sent."""
        self._aborted = True
        self._client.abort()
        self._fail(errors.ConnectionClosedError())

    async def close(self) -> None:
        """End it within a second, one way or the other."""
        with suppress(Exception):
            async with asyncio.timeout(CLOSE_SECONDS):
                await self._client.close()
        self.abort()

    def _fail(self, error: Exception) -> None:
        for pending in self._pending.values():
            if not pending.answer.done():
                pending.answer.set_exception(error)
        self._pending.clear()

    async def _on_message(self, message: Msg) -> None:
        pending = self._pending.get(message.subject)
        if pending is None or pending.answer.done():
            return
        if message.headers and message.headers.get("Status") == NO_RESPONDERS:
            self.last_answer = asyncio.get_running_loop().time()
            pending.answer.set_exception(errors.NoRespondersError())
        else:
            self._on_answer(message.subject, message.data)

    def _on_answer(self, subject: str, data: bytes) -> None:
        pending = self._pending.get(subject)
        answer = _read(data)
        if pending is not None and answer is not None and not pending.answer.done():
            self.last_answer = asyncio.get_running_loop().time()
            pending.answer.set_result(answer)

    async def _on_error(self, error: Exception) -> None:
        self._last_error = error
        text = str(error).lower()
        if "permissions violation for subscription" in text:
            self._last_error = NoAnswers()
            self._fail(NoAnswers())
        elif "permissions violation for publish" in text:
            # The client has put the server's words, and with them the subject, in lower case.
            for pending in self._pending.values():
                if f'"{pending.subject.lower()}"' in text and not pending.answer.done():
                    pending.answer.set_exception(Denied())

    async def _on_closed(self) -> None:
        self._fail(errors.ConnectionClosedError())

    def _reason(self, error: Exception) -> Exception:
        """The client's own account of a refusal is a text, and that of several servers is none."""
        if isinstance(error, errors.NoServersError) and self._last_error is not None:
            return self._last_error
        if type(error) is errors.Error and "authorization violation" in str(error).lower():
            return Refused()
        return error


def _read(data: bytes) -> Answer | None:
    """A stream's answer; None for that of anybody else who listens to the subject."""
    try:
        answer = json.loads(data)
    except ValueError:
        return None
    if not isinstance(answer, dict):
        return None
    taken = isinstance(answer.get("stream"), str) and isinstance(answer.get("seq"), int)
    return answer if taken or isinstance(answer.get("error"), dict) else None


def _look(answer: asyncio.Future[Answer]) -> None:
    if not answer.cancelled():
        answer.exception()
