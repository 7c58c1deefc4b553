"""A limit that the HTTP client lacks: answers that nobody asked for."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, cast

from aiohttp.client_proto import ResponseHandler

if TYPE_CHECKING:
    import aiohttp
    from aiohttp.http_parser import RawResponseMessage
    from aiohttp.streams import StreamReader

MOST_HEADS = 16
"""Answers that wait to be read on one connection. Each request has one, and perhaps a few 1xx."""


class Handler(ResponseHandler):
    """Hangs up on a server that goes on answering.

    The client reads what is buffered without letting the event loop turn, and buffers without a
    limit: ``100 Continue`` for ever would stop the whole worker and eat its memory.
    """

    def feed_data(self, data: tuple[RawResponseMessage, StreamReader], size: int = 0) -> None:
        """One more head has been parsed."""
        if len(self._buffer) < MOST_HEADS:
            super().feed_data(data, size)
        else:
            self.close()


def limited(connector: aiohttp.TCPConnector) -> aiohttp.TCPConnector:
    """The connector, whose connections are such handlers. It has no public way to say so."""
    make = partial(cast("type[ResponseHandler]", Handler), loop=connector._loop)  # noqa: SLF001 - as said
    connector._factory = make  # noqa: SLF001 - as said
    return connector
