"""An HTTP receiver that costs next to nothing: ``python -m benchmarks.sink``.

Prints its port. Answers every request with 204 once its body has arrived, keeps connections open.
"""

# ruff: noqa: INP001 - a script

from __future__ import annotations

import asyncio
import sys
from typing import cast

import uvloop

ANSWER = b"HTTP/1.1 204 No Content\r\n\r\n"
END = b"\r\n\r\n"
LENGTH = b"content-length:"


class Sink(asyncio.Protocol):
    """Reads requests with a Content-Length, one after the other."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Remember where to answer."""
        # uvloop's has all of its methods and is none.
        self._transport = cast("asyncio.Transport", transport)
        self._buffer = b""

    def data_received(self, data: bytes) -> None:
        """Answer each request that is complete."""
        self._buffer += data
        while (end := self._buffer.find(END)) >= 0:
            head = self._buffer[:end].lower()
            start = head.find(LENGTH)
            length = int(head[start + len(LENGTH) :].split(b"\r\n", 1)[0]) if start >= 0 else 0
            whole = end + len(END) + length
            if len(self._buffer) < whole:
                return
            self._buffer = self._buffer[whole:]
            self._transport.write(ANSWER)


async def serve() -> None:
    """Until killed."""
    server = await asyncio.get_running_loop().create_server(Sink, "127.0.0.1", 0)
    sys.stdout.write(f"{server.sockets[0].getsockname()[1]}\n")
    sys.stdout.flush()
    await server.serve_forever()


if __name__ == "__main__":
    uvloop.run(serve())
