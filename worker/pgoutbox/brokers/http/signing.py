"""Signatures of Standard Webhooks 1.0, with secrets that may change while the worker runs."""

from __future__ import annotations

import binascii
import hmac
import time
from base64 import b64decode, b64encode
from contextlib import suppress
from typing import TYPE_CHECKING, TypeAlias

from pgoutbox.errors import DestinationUnavailable, InvalidDestination

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from uuid import UUID

    Sign: TypeAlias = Callable[[bytes], str]

HMAC_PREFIX = "whsec_"
ED25519_PREFIX = "whsk_"
SHORTEST, LONGEST = 24, 64
"""Bytes of an HMAC secret."""
SEED = 32
"""Bytes of an ed25519 seed; some tools write the public key behind it."""


class Signer:
    """Signs with every secret that there is, the newest first. It never lets anything go unsigned.

    ``read`` gives the secrets as they are now. It is asked for every message, and they are parsed
    only when they differ from the last time.
    """

    def __init__(self, read: Callable[[], Sequence[str]]) -> None:
        self._read = read
        self._seen: tuple[str, ...] | None = None
        """What was parsed last, for better or worse."""
        self._keys: tuple[Sign, ...] = ()
        """The last that were good."""

    def check(self, destination: str) -> None:
        """Read the secrets for the first time. Raises `InvalidDestination` for none, or bad ones.

        Where they cannot be read at all the destination is unavailable until they can.
        """
        try:
            self._refresh()
        except OSError:
            return
        except ValueError as problem:
            # Not chained: a parser's words may repeat what it could not parse.
            raise InvalidDestination(destination, str(problem)) from None

    def headers(self, message_id: UUID, body: bytes) -> list[tuple[str, str]]:
        """What vouches for exactly these bytes being sent now.

        Raises `DestinationUnavailable` where good secrets were never to be had.
        """
        # The good ones go on: a file that is being replaced must not stop deliveries.
        with suppress(OSError, ValueError):
            self._refresh()
        if not self._keys:
            raise DestinationUnavailable("the signing secrets cannot be read")
        timestamp = str(int(time.time()))
        content = f"{message_id}.{timestamp}.".encode() + body
        return [
            ("webhook-timestamp", timestamp),
            ("webhook-signature", " ".join([sign(content) for sign in self._keys])),
        ]

    def _refresh(self) -> None:
        secrets = tuple(self._read())
        if secrets == self._seen:
            return
        self._seen = secrets
        if not secrets:
            raise ValueError("there is no signing secret")
        self._keys = tuple(
            key_of(secret, f"signing secret {number} of {len(secrets)}")
            for number, secret in enumerate(secrets, 1)
        )


def key_of(secret: str, name: str) -> Sign:
    """What signs with ``secret``. Raises ValueError with its ``name``, never with the secret."""
    if secret.startswith(HMAC_PREFIX):
        return _hmac(_decoded(secret.removeprefix(HMAC_PREFIX), name), name)
    if secret.startswith(ED25519_PREFIX):
        return _ed25519(_decoded(secret.removeprefix(ED25519_PREFIX), name), name)
    raise ValueError(
        f"{name} begins neither with {HMAC_PREFIX} (HMAC-SHA256) "
        f"nor with {ED25519_PREFIX} (ed25519)"
    )


def _decoded(text: str, name: str) -> bytes:
    try:
        return b64decode(text + "=" * (-len(text) % 4), validate=True)
    except (binascii.Error, ValueError):
        raise ValueError(f"{name} is not base64 behind its prefix") from None


def _hmac(key: bytes, name: str) -> Sign:
    if not SHORTEST <= len(key) <= LONGEST:
        raise ValueError(f"{name} has {len(key)} bytes; HMAC takes {SHORTEST} to {LONGEST}")

    def sign(content: bytes) -> str:
        return "v1," + b64encode(hmac.digest(key, content, "sha256")).decode("ascii")

    return sign


def _ed25519(key: bytes, name: str) -> Sign:
    # A heavy import, and one that few need.
    try:
        from cryptography.hazmat.primitives.asymmetric.ed25519 import (  # noqa: PLC0415
            Ed25519PrivateKey,
        )
    except ImportError:
        raise ValueError(
            f"{name} is an ed25519 key, which needs the package cryptography: "
            "install pgoutbox[http]"
        ) from None
    seed, public = key[:SEED], key[SEED:]
    if len(seed) != SEED or len(public) not in (0, SEED):
        raise ValueError(
            f"{name} has {len(key)} bytes; an ed25519 key has {SEED}, "
            f"or {2 * SEED} with its public half"
        )
    private = Ed25519PrivateKey.from_private_bytes(seed)
    if public and public != private.public_key().public_bytes_raw():
        raise ValueError(f"{name} is an ed25519 key whose halves do not belong together")

    def sign(content: bytes) -> str:
        return "v1a," + b64encode(private.sign(content)).decode("ascii")

    return sign
