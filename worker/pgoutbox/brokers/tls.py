"""TLS by files that a destination's URL names, for the clients that take a context."""

from __future__ import annotations

import ssl
from typing import TYPE_CHECKING

from pgoutbox.errors import InvalidDestination

if TYPE_CHECKING:
    from collections.abc import Mapping

TLS_OPTIONS = ("ca_file", "cert_file", "key_file")


def files_in(given: Mapping[str, str]) -> list[str]:
    """Which of `TLS_OPTIONS` are among the options ``given``."""
    return [name for name in TLS_OPTIONS if name in given]


def context_of(given: Mapping[str, str], destination: str) -> ssl.SSLContext:
    """One that verifies the server, by ``ca_file`` or the system's certificates.

    Raises `InvalidDestination` where a file cannot be loaded.
    """
    if "key_file" in given and "cert_file" not in given:
        raise InvalidDestination(destination, "key_file needs cert_file")
    try:
        context = ssl.create_default_context(cafile=given.get("ca_file"))
        if "cert_file" in given:
            # An empty password, so that nobody is asked for one at a terminal.
            context.load_cert_chain(given["cert_file"], given.get("key_file"), password="")
    except (OSError, ValueError):
        names = ", ".join(files_in(given)) or "the system's certificates"
        raise InvalidDestination(destination, f"{names} cannot be loaded") from None
    return context
