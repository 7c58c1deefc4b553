"""``nats://user:password@host:port,host2:port2?option=value`` and what it may say."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote

from pgoutbox.brokers.query import hosts_of, options_of, split_hosts, switch
from pgoutbox.brokers.tls import TLS_OPTIONS, context_of, files_in
from pgoutbox.errors import InvalidDestination

if TYPE_CHECKING:
    import ssl
    from collections.abc import Mapping

OPTIONS = ("tls", *TLS_OPTIONS, "credentials", "inbox_prefix")
PORT = 4222
_INBOX = re.compile(r"[^\s.*>]+(?:\.[^\s.*>]+)*")


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """Where to connect, and as whom."""

    servers: tuple[str, ...]
    """Each as ``host:port``."""
    user: str | None = field(repr=False)
    """The user, or a token where there is no password."""
    password: str | None = field(repr=False)
    credentials: Path | None
    tls: ssl.SSLContext | None = field(repr=False)
    """None: only where the server insists on it."""
    inbox_prefix: str

    @property
    def where(self) -> str:
        """For messages to people."""
        return ",".join(self.servers)


def target_of(url: str, destination: str) -> Target:
    """Read a URL. Raises `InvalidDestination`, which never quotes it."""
    parts = split_hosts(url, destination)
    if parts.path not in ("", "/"):
        raise InvalidDestination(
            destination,
            "a nats URL has no path; the subject is the destination's topic in the settings",
        )
    login, _, hosts = parts.netloc.rpartition("@")
    user, colon, password = login.partition(":")
    given = options_of(url, destination, known=OPTIONS)
    inbox_prefix = given.get("inbox_prefix", "_INBOX")
    if _INBOX.fullmatch(inbox_prefix) is None:
        raise InvalidDestination(destination, "inbox_prefix is a subject without wildcards")
    return Target(
        servers=hosts_of(hosts, destination, default=PORT),
        user=unquote(user) or None,
        password=unquote(password) if colon else None,
        credentials=_credentials(given, destination),
        tls=_tls(given, destination),
        inbox_prefix=inbox_prefix,
    )


def _credentials(given: Mapping[str, str], destination: str) -> Path | None:
    if "credentials" not in given:
        return None
    if find_spec("nkeys") is None:
        raise InvalidDestination(
            destination, "credentials files need the package nkeys; install nats-py[nkeys]"
        )
    path = Path(given["credentials"])
    try:
        with path.open("rb"):
            return path
    except OSError as error:
        raise InvalidDestination(
            destination, f"the credentials file cannot be read: {error.strerror}"
        ) from None


def _tls(given: dict[str, str], destination: str) -> ssl.SSLContext | None:
    if switch(given, "tls", destination, default=False):
        return context_of(given, destination)
    if files := files_in(given):
        raise InvalidDestination(destination, f"{files[0]} needs tls=1")
    return None
