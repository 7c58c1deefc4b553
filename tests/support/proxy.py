"""The proxy before the test server: it reads along, and can lose the answer to a statement."""

from __future__ import annotations

import asyncio
import struct
import threading
from collections import Counter
from typing import TYPE_CHECKING, Any

from psycopg.conninfo import conninfo_to_dict, make_conninfo

from tests.support.tcp_proxy import CHUNK, Link, TcpProxy

if TYPE_CHECKING:
    from collections.abc import Iterator

NO_TYPE_YET = frozenset({80_877_103, 80_877_104})
"""Codes of the requests for TLS and GSS: after them another message without a type follows."""
IDLE = b"Z\x00\x00\x00\x05I"
"""How an answer ends when the statement's transaction is over."""


class Requests:
    """Reads what a client sends: which statement each execution is of."""

    def __init__(self) -> None:
        self._bytes = bytearray()
        self._typed = False
        self.prepared: dict[bytes, bytes] = {}
        self._bound = b""

    def executed(self, chunk: bytes) -> Iterator[bytes]:
        """The texts of the statements whose execution is asked for in this chunk."""
        self._bytes += chunk
        while message := self._next():
            kind, body = message
            if kind == b"P":
                name, text, _ = body.split(b"\0", 2)
                self.prepared[name] = text
            elif kind == b"B":
                self._bound = self.prepared.get(body.split(b"\0", 2)[1], b"")
            elif kind == b"E":
                yield self._bound
            elif kind == b"Q":
                yield body

    def _next(self) -> tuple[bytes, bytes] | None:
        head = 1 if self._typed else 0
        if len(self._bytes) < head + 4:
            return None
        (length,) = struct.unpack_from("!I", self._bytes, head)
        if len(self._bytes) < head + length:
            return None
        kind, body = bytes(self._bytes[:head]), bytes(self._bytes[head + 4 : head + length])
        del self._bytes[: head + length]
        if not self._typed:
            self._typed = struct.unpack_from("!I", body)[0] not in NO_TYPE_YET
            return b"start", body
        return kind, body


class Proxy(TcpProxy):
    """Forwards to the server of ``dsn``, until told otherwise. Its own ``dsn`` leads through it."""

    def __init__(self, dsn: str) -> None:
        self._given = conninfo_to_dict(dsn)
        host, port = str(self._given.get("host", "")), str(self._given.get("port", 5432))
        super().__init__((host, int(port)))
        self.statements: Counter[bytes] = Counter()
        """Executions by the statement's text."""
        self.prepared: set[bytes] = set()
        """Statements that were prepared under a name."""
        self._lose: tuple[bytes, threading.Event] | None = None
        self._freeze_at: tuple[bytes, threading.Event] | None = None

    @property
    def dsn(self) -> str:
        """The server's, through this proxy, unencrypted so that it can be read along."""
        through: dict[str, Any] = {"host": "127.0.0.1", "port": self.port, "sslmode": "disable"}
        return make_conninfo("", **self._given | through | {"gssencmode": "disable"})

    def lose_answer(self, fragment: bytes) -> threading.Event:
        """Cut the connection between the next such statement's commit and its answer.

        ``fragment`` is part of the statement's text. The event is set once it has happened.
        """
        lost = threading.Event()
        self._lose = (fragment, lost)
        return lost

    def freeze_at(self, fragment: bytes) -> threading.Event:
        """Let the connection of the next such statement hang for good; the others work."""
        frozen = threading.Event()
        self._freeze_at = (fragment, frozen)
        return frozen

    def executions(self) -> int:
        """How many statements were sent so far."""
        return self.statements.total()

    def until_count(self, fragment: bytes, count: int) -> float:
        """Return once so many such statements were sent in all; the seconds that it took."""
        why = f"{count} statements with {fragment!r}"
        return self.until(lambda: self.count(fragment) >= count, why)

    def count(self, fragment: bytes) -> int:
        """How many statements with this in their text were sent so far."""
        # A copy, in one step: the proxy's own thread adds to it meanwhile.
        return sum(times for text, times in self.statements.copy().items() if fragment in text)

    async def _connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        host, port = self._target
        if host.startswith("/"):
            return await asyncio.open_unix_connection(f"{host}/.s.PGSQL.{port}")
        return await super()._connect()

    async def _forward_requests(
        self, link: Link, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        requests = Requests()
        while chunk := await reader.read(CHUNK):
            await link.flowing.wait()
            for text in requests.executed(chunk):
                self.statements[text] += 1
                self._act_on(link, text)
                self._tell()
            self.prepared.update(text for name, text in requests.prepared.items() if name)
            await link.flowing.wait()
            writer.write(chunk)
            await writer.drain()
        link.close()

    def _act_on(self, link: Link, statement: bytes) -> None:
        if self._lose is not None and self._lose[0] in statement:
            link.losing = True
        if self._freeze_at is not None and self._freeze_at[0] in statement:
            frozen, self._freeze_at = self._freeze_at[1], None
            link.flowing.clear()
            frozen.set()

    async def _forward_answers(
        self, link: Link, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        while chunk := await reader.read(CHUNK):
            if link.losing:
                if chunk.endswith(IDLE):
                    break
                continue
            await link.flowing.wait()
            writer.write(chunk)
            await writer.drain()
        if link.losing and self._lose is not None:
            lost, self._lose = self._lose[1], None
            link.cut()
            lost.set()
        link.close()
