"""``amqp://user:password@host:port/vhost?exchange=NAME`` and what it may say."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import unquote

from pgoutbox.brokers.query import options_of, split
from pgoutbox.brokers.rabbitmq.frames import SHORT
from pgoutbox.brokers.tls import TLS_OPTIONS, context_of, files_in
from pgoutbox.errors import InvalidDestination

if TYPE_CHECKING:
    import ssl
    from urllib.parse import SplitResult

OPTIONS = ("exchange", "heartbeat", *TLS_OPTIONS)
PORTS = {"amqp": 5672, "amqps": 5671}
HEARTBEAT = 10
"""Seconds; a peer that is silent for about three times as long is taken for dead."""
LONGEST_HEARTBEAT = 3600


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """Where to connect, and where messages go there."""

    host: str
    port: int
    user: str
    password: str
    vhost: str
    exchange: str
    heartbeat: int
    tls: ssl.SSLContext | None

    @property
    def where(self) -> str:
        """For messages to people."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    def __repr__(self) -> str:
        return f"Target({self.where})"


def target_of(url: str, destination: str) -> Target:
    """Read a URL. Raises `InvalidDestination`, which never quotes it."""
    parts = split(url, destination)
    if not (host := parts.hostname):
        raise InvalidDestination(destination, "the URL names no host")
    given = options_of(url, destination, known=OPTIONS)
    exchange = given.get("exchange", "")
    if len(exchange.encode()) > SHORT:
        raise InvalidDestination(destination, f"an exchange's name has at most {SHORT} bytes")
    return Target(
        host=host,
        port=parts.port or PORTS[parts.scheme],
        user=unquote(parts.username or "guest"),
        password=unquote(parts.password or "guest"),
        vhost=_vhost(parts, destination),
        exchange=exchange,
        heartbeat=_heartbeat(given, destination),
        tls=_tls(parts.scheme, given, destination),
    )


def _vhost(parts: SplitResult, destination: str) -> str:
    path = parts.path.removeprefix("/")
    if "/" in path:
        raise InvalidDestination(
            destination,
            "the URL's path is the virtual host, and that is one name; write a slash in it as %2F",
        )
    return unquote(path) or "/"


def _heartbeat(given: dict[str, str], destination: str) -> int:
    text = given.get("heartbeat", str(HEARTBEAT))
    if not (text.isascii() and text.isdecimal() and 1 <= int(text[:9]) <= LONGEST_HEARTBEAT):
        raise InvalidDestination(
            destination, f"heartbeat is a number of seconds from 1 to {LONGEST_HEARTBEAT}"
        )
    return int(text)


def _tls(scheme: str, given: dict[str, str], destination: str) -> ssl.SSLContext | None:
    if scheme == "amqps":
        return context_of(given, destination)
    if files := files_in(given):
        raise InvalidDestination(destination, f"{files[0]} is for amqps:// only")
    return None
