"""``nats://user:password@host:port,host2:port2?option=value`` and what it may say."""

from __future__ import annotations

import re
import ssl
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote

from pgoutbox.brokers.query import hosts_of, options_of, split_hosts, switch
from pgoutbox.errors import InvalidDestination

if TYPE_CHECKING:
    from collections.abc import Mapping

OPTIONS = ("tls", "cafile", "certfile", "keyfile", "credentials", "inbox_prefix")
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
    files = [name for name in ("cafile", "certfile", "keyfile") if name in given]
    if not switch(given, "tls", destination, default=False):
        if files:
            raise InvalidDestination(destination, f"{files[0]} needs tls=1")
        return None
    if "keyfile" in given and "certfile" not in given:
        raise InvalidDestination(destination, "keyfile needs certfile")
    try:
        context = ssl.create_default_context(cafile=given.get("cafile"))
        if "certfile" in given:
            # An empty password, so that nobody is asked for one at a terminal.
            context.load_cert_chain(given["certfile"], given.get("keyfile"), password="")
    except (OSError, ValueError):
        names = ", ".join(files) or "the system's certificates"
        raise InvalidDestination(destination, f"{names} cannot be loaded") from None
    return context
