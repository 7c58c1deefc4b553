"""What a ``redis://`` URL says."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import SplitResult, unquote

from pgoutbox.brokers.query import options_of, split
from pgoutbox.brokers.tls import TLS_OPTIONS, context_of
from pgoutbox.errors import InvalidDestination

if TYPE_CHECKING:
    import ssl
    from collections.abc import Mapping

DEFAULT_PORT = 6379
MAX_BYTES = 512 * 2**20
"""What Redis takes as one value, unless its ``proto-max-bulk-len`` says otherwise."""
LIMITS = ("maxlen", "wait", "max_bytes")


class Limits(NamedTuple):
    """The numbers in the URL's query."""

    maxlen: int | None
    """About how many entries a stream keeps."""
    wait: int
    """How many replicas must have a message."""
    max_bytes: int
    """The largest payload."""


class RedisUrl(NamedTuple):
    """A URL that makes sense."""

    where: str
    """Host and port, for people."""
    tls: ssl.SSLContext | None
    arguments: Mapping[str, Any]
    """Those of redis-py's connections."""
    limits: Limits


def read_url(url: str, destination: str) -> RedisUrl:
    """What the URL says. Raises `InvalidDestination`, without quoting it."""
    parts = split(url, destination)
    tls = parts.scheme == "rediss"
    given = options_of(url, destination, known=(*LIMITS, *TLS_OPTIONS) if tls else LIMITS)
    if parts.fragment:
        raise InvalidDestination(destination, "the URL has a fragment; write # as %23")
    host, port = parts.hostname or "", parts.port or DEFAULT_PORT
    if not host:
        raise InvalidDestination(destination, "the URL names no host")
    arguments: dict[str, Any] = {
        "host": host,
        "port": port,
        "db": _whole(parts.path.removeprefix("/") or "0", "the database in the URL", destination),
        "protocol": 2,
        "socket_timeout": None,
    }
    arguments |= _credentials(parts)
    where = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    context = context_of(given, destination) if tls else None
    return RedisUrl(where, context, arguments, _limits(given, destination))


def _limits(given: Mapping[str, str], destination: str) -> Limits:
    limits = Limits(
        _whole(given["maxlen"], "maxlen", destination) if "maxlen" in given else None,
        _whole(given.get("wait", "0"), "wait", destination),
        _whole(given.get("max_bytes", str(MAX_BYTES)), "max_bytes", destination),
    )
    if limits.maxlen == 0:
        raise InvalidDestination(destination, "maxlen=0 would keep nothing")
    return limits


def _whole(text: str, name: str, destination: str) -> int:
    if not (text.isascii() and text.isdecimal() and len(text) <= len(str(2**53))):
        raise InvalidDestination(destination, f"{name} is not a whole number")
    return int(text)


def _credentials(parts: SplitResult) -> dict[str, str]:
    given = {"username": parts.username, "password": parts.password}
    return {name: unquote(text) for name, text in given.items() if text}
