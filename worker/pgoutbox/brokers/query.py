"""The parts of a destination's URL, and the options in its query."""

from __future__ import annotations

import ipaddress
import re
from typing import TYPE_CHECKING
from urllib.parse import SplitResult, parse_qsl

from pgoutbox.errors import InvalidDestination

if TYPE_CHECKING:
    from collections.abc import Collection

YES = ("1", "true", "yes", "on")
NO = ("0", "false", "no", "off")
LAST_PORT = 65535
LONGEST_LABEL = 63
"""Characters between two dots of a host name."""
HOST = re.compile(r"(?:\[[0-9A-Fa-f:.]+\]|[^\[\]:,@]*)(?::[0-9]{0,5})?")
"""A host and perhaps a port, or neither."""
_VISIBLE = re.compile(r"[!-~]+")
_URL = re.compile(
    r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]*)://(?P<netloc>[^/?#]*)"
    r"(?P<path>[^?#]*)(?:\?(?P<query>[^#]*))?(?:#(?P<fragment>.*))?"
)
_PARTS = ("netloc", "path", "query", "fragment")
_NAME = re.compile(r"[a-z][a-z_.]*")


def split(url: str, destination: str) -> SplitResult:
    """The parts of ``url``, which names one host at most; both host and port can be read.

    Raises `InvalidDestination`, in words that repeat nothing of the URL.
    """
    parts = split_hosts(url, destination)
    where = parts.netloc.rpartition("@")[2]
    if HOST.fullmatch(where) is None or not _is_address(where):
        raise malformed(destination)
    return parts


def split_hosts(url: str, destination: str) -> SplitResult:
    """As `split`, where what stands in the host's place may be something else, as several hosts."""
    # By ourselves: what the standard library takes for well-formed differs from one Python to the
    # next, it drops line breaks without a word, and its own words may hold the password.
    if _VISIBLE.fullmatch(url) is None:
        raise InvalidDestination(
            destination, "the URL has blanks or non-ASCII characters; percent-encode them"
        )
    found = _URL.fullmatch(url)
    if found is None:
        raise InvalidDestination(destination, "the URL is not of the form scheme://host")
    parts = SplitResult(found["scheme"].lower(), *(found[name] or "" for name in _PARTS))
    if "@" in parts.path + parts.query + parts.fragment:
        # Most likely the rest of a password, in which one of the others was not encoded.
        raise InvalidDestination(
            destination,
            "the URL has an @ behind its host; percent-encode / ? # and @ in the user and the"
            " password, and an @ elsewhere",
        )
    return parts


def hosts_of(text: str, destination: str, *, default: int) -> tuple[str, ...]:
    """Each of several hosts with commas between them, as ``host:port``."""
    if not text:
        raise InvalidDestination(destination, "the URL names no host")
    hosts = []
    for where in text.split(","):
        port = _port_of(where)
        host = where.removesuffix(f":{port}")
        if not host or HOST.fullmatch(where) is None or not _is_address(where):
            raise InvalidDestination(
                destination,
                "the URL's hosts are not well-formed; write host:port, several with commas",
            )
        hosts.append(f"{host}:{port or default}")
    return tuple(hosts)


def nothing_else(url: str, destination: str) -> None:
    """Refuse a URL that holds anything but its scheme and options."""
    parts = split_hosts(url, destination)
    if parts.netloc or parts.path.strip("/") or parts.fragment:
        raise InvalidDestination(
            destination, f"nothing but options stands behind {parts.scheme}://"
        )


def malformed(destination: str) -> InvalidDestination:
    """What to say of a host or port that cannot be read."""
    return InvalidDestination(destination, "the URL's host or port is not well-formed")


def is_host(text: str) -> bool:
    """Whether one could ask for its address. Clients raise all kinds of errors where not."""
    if text.startswith("["):
        try:
            ipaddress.IPv6Address(text[1:-1])
        except ValueError:
            return False
        return True
    return all(0 < len(label) <= LONGEST_LABEL for label in text.removesuffix(".").split("."))


def _is_address(where: str) -> bool:
    port = _port_of(where)
    if port and not 0 < int(port) <= LAST_PORT:
        return False
    host = where.removesuffix(f":{port}")
    return not host or is_host(host)


def _port_of(where: str) -> str:
    return where.rpartition("]")[2].partition(":")[2]


def options_of(url: str, destination: str, *, known: Collection[str]) -> dict[str, str]:
    """The options in the query of ``url``; one that is unknown or repeated is refused."""
    found: dict[str, str] = {}
    parts = split_hosts(url, destination)
    for name, value in parse_qsl(parts.query, keep_blank_values=True):
        if name not in known:
            offer = f"known are {', '.join(known)}" if known else "it takes none"
            # What does not look like the name of an option may be anything, a secret included.
            shown = repr(name) if _NAME.fullmatch(name) else "what stands in its query"
            raise InvalidDestination(
                destination, f"{shown} is no option of {parts.scheme}://; {offer}"
            )
        if name in found:
            raise InvalidDestination(destination, f"the option {name!r} is given twice")
        found[name] = value
    return found


def switch(options: dict[str, str], name: str, destination: str, *, default: bool) -> bool:
    """An option that is on or off."""
    value = options.get(name, "").lower()
    if value in YES:
        return True
    if value in NO:
        return False
    if name not in options:
        return default
    raise InvalidDestination(destination, f"{name}={value} is neither 1 nor 0")


def milliseconds(options: dict[str, str], name: str, destination: str) -> float:
    """An option in milliseconds, as seconds; 0 where it is absent."""
    text = options.get(name, "0")
    if not (text.isascii() and text.isdecimal() and len(text) <= len("3600000")):
        raise InvalidDestination(
            destination, f"{name}={text} is not a whole number of milliseconds"
        )
    return int(text) / 1000
