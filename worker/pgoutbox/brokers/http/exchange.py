"""One POST and its answer, on a connection of the client's.

The client connects, keeps connections, and reads answers. Its requests are written here: in the
client's own way, with a copy of the headers at each step and a task for the body, each would cost
more than all else that a worker does for a message.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from functools import lru_cache
from http import HTTPStatus
from typing import TYPE_CHECKING, NamedTuple

import aiohttp
from aiohttp.http import HttpProcessingError, StreamWriter

from pgoutbox.brokers.http.patience import Patience

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from aiohttp.client_proto import ResponseHandler
    from aiohttp.connector import Connection
    from yarl import URL

WHOLE_BODY = 256 * 1024
"""Bytes of a payload that are written at once."""
PIECE = 64 * 1024
"""Bytes of a larger one that are written before others have their turn."""
MAX_ANSWER = 64 * 1024
"""Bytes of an answer's body that are read before its connection is given up."""
ANSWER_SECONDS = 1.0
"""How long the rest of an answer's body may take before its connection is given up."""
INTERIM = frozenset(range(HTTPStatus.CONTINUE, HTTPStatus.OK)) - {HTTPStatus.SWITCHING_PROTOCOLS}
"""What more follows after."""
ORIGINS = 256
"""Hosts that are remembered, where messages choose them."""


class Answer(NamedTuple):
    """What it begins with, and where the rest of it comes from."""

    status: int
    headers: Mapping[str, str]
    body: aiohttp.StreamReader


class Exchanges:
    """Posts; every exchange has a connection of its own while it lasts."""

    def __init__(
        self,
        connector: aiohttp.TCPConnector,
        *,
        own_headers: Sequence[tuple[str, str]],
        connect_within: float,
        answer_within: float,
    ) -> None:
        """``own_headers`` come first. ``answer_within``: seconds for an answer's beginning."""
        self._connector = connector
        self._own = [f"{name}: {value}" for name, value in own_headers]
        self._times = aiohttp.ClientTimeout(connect=connect_within, sock_connect=connect_within)
        self._patience = Patience(answer_within)
        # All that it is asked for is where to connect to.
        self._to = lru_cache(maxsize=ORIGINS)(_request_to)

    async def post(self, url: URL, headers: Sequence[tuple[str, str]], body: bytes) -> Answer:
        """The answer's status and headers; its connection is free again, or closed.

        Raises what the client does, TimeoutError where nothing is answered in time, and ValueError
        for a header that would end before its line does.
        """
        head = self._head(url, headers, len(body))
        async with asyncio.timeout(None) as limit:
            until = self._patience.begin(limit)
            try:
                connection = await self._connection(url)
                answer = await _answer(connection, head, body)
            finally:
                self._patience.end(limit)
        # From here on the status has decided, and no timeout takes it back.
        try:
            if not connection.closed:
                await _read_rest(answer.body, until)
        finally:
            # It is closed where there is something left to read.
            connection.release()
        return answer

    async def close(self) -> None:
        """Close the connections; whatever is under way fails."""
        self._patience.close()
        await self._connector.close()

    async def _connection(self, url: URL) -> Connection:
        to = self._to(url.origin())
        while True:
            try:
                connection = await self._connector.connect(to, traces=[], timeout=self._times)
            except TimeoutError:
                raise aiohttp.ConnectionTimeoutError from None
            protocol = connection.protocol
            if protocol is None or not protocol.should_close:
                return connection
            # Something came while nobody waited for it, and would pass for the next answer.
            connection.close()

    def _head(self, url: URL, headers: Sequence[tuple[str, str]], size: int) -> bytes:
        lines = [f"POST {url.raw_path_qs} HTTP/1.1", f"Host: {url.host_port_subcomponent}"]
        lines += self._own
        lines += [f"{name}: {value}" for name, value in headers]
        if "accept" not in [name.lower() for name, _ in headers]:
            lines.append("Accept: */*")
        lines.append(f"Content-Length: {size}\r\n\r\n")
        text = "\r\n".join(lines)
        if not text.count("\r") == text.count("\n") == len(lines) + 1:
            raise ValueError("a header has a line break")
        return text.encode("ascii")


def _request_to(origin: URL) -> aiohttp.ClientRequest:
    return aiohttp.ClientRequest("POST", origin, loop=asyncio.get_running_loop())


async def _answer(connection: Connection, head: bytes, body: bytes) -> Answer:
    """Send, and await how the answer begins; else the connection is closed."""
    try:
        protocol = connection.protocol
        if protocol is None or protocol.transport is None:
            raise aiohttp.ServerDisconnectedError  # noqa: TRY301 - closes it too
        protocol.set_response_params(read_until_eof=True, auto_decompress=False)
        if len(body) <= WHOLE_BODY:
            protocol.transport.write(head + body)
            return await _beginning(protocol)
        protocol.transport.write(head)
        writing = asyncio.create_task(_write_in_pieces(protocol, body))
        try:
            return await _beginning(protocol)
        finally:
            if not writing.done():
                # Refused before it was read, perhaps: what is left would pass for a request.
                writing.cancel()
                connection.close()
    except BaseException:
        connection.close()
        raise


async def _beginning(protocol: ResponseHandler) -> Answer:
    while True:
        head, body = await protocol.read()
        if head.code not in INTERIM:
            return Answer(head.code, head.headers, body)


async def _write_in_pieces(protocol: ResponseHandler, body: bytes) -> None:
    writer, view = StreamWriter(protocol, asyncio.get_running_loop()), memoryview(body)
    # Whoever reads the answer hears of it as well.
    with suppress(aiohttp.ClientError, OSError):
        for start in range(0, len(body), PIECE):
            await asyncio.sleep(0)
            await writer.write(view[start : start + PIECE])


async def _read_rest(body: aiohttp.StreamReader, until: float) -> None:
    """Read a short body to its end, so that the connection can be used again.

    One that is long, slow or broken costs the connection, and nothing else.
    """
    if body.is_eof():
        return
    loop, left = asyncio.get_running_loop(), MAX_ANSWER
    with suppress(aiohttp.ClientError, HttpProcessingError, OSError):
        async with asyncio.timeout_at(min(until, loop.time() + ANSWER_SECONDS)):
            while left > 0 and (chunk := await body.read(left)):
                left -= len(chunk)
