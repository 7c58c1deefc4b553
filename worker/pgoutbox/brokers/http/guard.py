"""Where a URL may lead when a message decides about its host: never inside."""

from __future__ import annotations

import re
import socket
from ipaddress import (
    IPv4Address,
    IPv4Network,
    IPv6Address,
    IPv6Network,
    ip_address,
)
from typing import TYPE_CHECKING

import aiohttp

from pgoutbox.errors import PermanentError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aiohttp.abc import ResolveResult

MOST = 253
"""Characters of a host name."""
# Its last label begins with a letter: everything else that looks like a name may be read as an
# address, as 127.1 and 0x7f000001 are.
_LABEL = r"[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?"
_NAME = re.compile(rf"(?:{_LABEL}\.)*[a-z](?:[a-z0-9-]{{0,61}}[a-z0-9])?")

# What `is_global` lets pass, or has let pass in some version of Python.
_INSIDE_4 = (
    IPv4Network("192.0.0.0/24"),
    IPv4Network("192.88.99.0/24"),  # relays of 6to4
    IPv4Network("168.63.129.16/32"),  # a cloud's own services, inside its virtual machines
)
_UNICAST_6 = IPv6Network("2000::/3")
_INSIDE_6 = (
    IPv6Network("2001::/32"),  # Teredo, which leads to an IPv4 address
    IPv6Network("2002::/16"),  # 6to4, which does too
    IPv6Network("3fff::/20"),  # documentation
)
_NAT64 = IPv6Network("64:ff9b::/96")


class AddressRefused(Exception):  # noqa: N818 - reads better where it is caught
    """A name led to an address that is not public. Not an OSError: it is no weather."""


class HostRules:
    """Which hosts a message may choose.

    ``allowed`` empty: every name whose addresses are all public. Otherwise only the hosts in it,
    exact names or all names below one (``*.example.com``), wherever they are.
    Raises ValueError for an entry that no host can match.
    """

    def __init__(self, allowed: Sequence[str] = ()) -> None:
        hosts = [_plain(host) for host in allowed]
        for given, host in zip(allowed, hosts, strict=True):
            if not (is_name(host.removeprefix("*.")) or _is_ipv4(host)):
                raise ValueError(
                    f"{given!r} in allowed_hosts is neither a host name, *.a-host-name nor an "
                    "IPv4 address"
                )
        self._exact = frozenset(host for host in hosts if not host.startswith("*."))
        self._below = tuple(host[1:] for host in hosts if host.startswith("*."))
        self.open = not hosts
        """Whether any public host will do."""

    def checked(self, host: str) -> str:
        """The host as it is asked for. Raises `PermanentError` unless it may be."""
        plain = _plain(host)
        if plain in self._exact:
            return plain
        if not is_name(plain):
            raise PermanentError(
                "the message makes the URL's host something that is no host name "
                "(a name of ASCII letters, digits, - and dots; no address, no port)"
            )
        if not self.allows(plain):
            raise PermanentError(
                f"the message makes the URL's host {plain!r}, which is not in allowed_hosts"
            )
        return plain

    def allows(self, host: str) -> bool:
        """Whether the list, if there is one, has this host."""
        plain = _plain(host)
        return self.open or plain in self._exact or plain.endswith(self._below)


class PublicResolver(aiohttp.ThreadedResolver):
    """Hands on only addresses that are public: what was checked is what is connected to."""

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        """As the client asks for it. Raises `AddressRefused` if one of the addresses is inside."""
        found = await super().resolve(host, port, family)
        if not all(is_public(one["host"]) for one in found):
            raise AddressRefused
        return found


def is_name(host: str) -> bool:
    """Whether this is a name in lower case, and nothing that could be taken for an address."""
    return len(host) <= MOST and _NAME.fullmatch(host) is not None


def is_public(text: str) -> bool:
    """Whether an address leads to the internet, and not to this machine or its neighbours."""
    address = ip_address(text)
    if isinstance(address, IPv6Address):
        inner = _inner(address)
        if inner is None:
            return (
                address in _UNICAST_6
                and address.is_global
                and not any(address in network for network in _INSIDE_6)
            )
        address = inner
    return (
        address.is_global
        and not address.is_multicast
        and not any(address in network for network in _INSIDE_4)
    )


def _inner(address: IPv6Address) -> IPv4Address | None:
    """The IPv4 address that this one stands for, by mapping or through a translator."""
    if address in _NAT64:
        return IPv4Address(int(address) & 0xFFFF_FFFF)
    return address.ipv4_mapped


def _plain(host: str) -> str:
    """In lower case, without the dot that ends a name in full."""
    return host.lower().removesuffix(".")


def _is_ipv4(host: str) -> bool:
    try:
        IPv4Address(host)
    except ValueError:
        return False
    return True
