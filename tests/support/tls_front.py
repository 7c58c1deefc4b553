"""A TLS end before a PostgreSQL server that has none: what clients see of the server is the same.

The embedded server is built without TLS. This answers a client's request for it as the server
would, proves who it is with a certificate, and passes everything on.
"""

from __future__ import annotations

import asyncio
import contextlib
import datetime as dt
import ipaddress
import ssl
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

if TYPE_CHECKING:
    from pathlib import Path

SSL_REQUEST = (8).to_bytes(4, "big") + (80877103).to_bytes(4, "big")
CHUNK = 65_536


@dataclass(frozen=True, slots=True)
class Authority:
    """A certificate authority of the test's own."""

    name: x509.Name
    key: ec.EllipticCurvePrivateKey
    file: Path
    """Its certificate, as clients are given it."""

    @classmethod
    def made(cls, file: Path) -> Self:
        """A new one."""
        key = ec.generate_private_key(ec.SECP256R1())
        name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, file.stem)])
        constraints = x509.BasicConstraints(ca=True, path_length=None)
        builder = _builder(name, name, key.public_key()).add_extension(constraints, critical=True)
        file.write_bytes(builder.sign(key, hashes.SHA256()).public_bytes(_PEM))
        return cls(name, key, file)

    def context(self, *hosts: str) -> ssl.SSLContext:
        """What a server of these host names or addresses proves itself with."""
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, hosts[0])])
        names = x509.SubjectAlternativeName(list(map(_general_name, hosts)))
        builder = _builder(subject, self.name, key.public_key())
        signed = builder.add_extension(names, critical=False).sign(self.key, hashes.SHA256())
        file = self.file.with_name(f"{self.file.stem}-{hosts[0]}.pem")
        private = key.private_bytes(
            _PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        file.write_bytes(signed.public_bytes(_PEM) + private)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(file)
        return context


class TlsFront:
    """Listens on ``port`` of loopback, and leads to the server at the Unix socket ``target``."""

    def __init__(self, target: str, context: ssl.SSLContext | None) -> None:
        """Without a ``context`` it says that it has no TLS."""
        self.port = 0
        self._target = target
        self._context = context
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    def __enter__(self) -> Self:
        self._thread.start()
        asyncio.run_coroutine_threadsafe(self._start(), self._loop).result(10)
        return self

    def __exit__(self, *_: object) -> None:
        asyncio.run_coroutine_threadsafe(self._stop(), self._loop).result(10)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def _start(self) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]

    async def _stop(self) -> None:
        assert self._server is not None
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        # Cancelled by the front's end: what streams do with such a task is to complain.
        with contextlib.suppress(OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
            await self._pass_on(reader, writer)
        self._tasks.discard(task)
        writer.close()

    async def _pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        first = await reader.readexactly(len(SSL_REQUEST))
        if first == SSL_REQUEST:
            writer.write(b"N" if self._context is None else b"S")
            await writer.drain()
            if self._context is not None:
                await writer.start_tls(self._context)
            first = b""
        from_server, to_server = await asyncio.open_unix_connection(self._target)
        try:
            to_server.write(first)
            await asyncio.wait(
                [
                    asyncio.ensure_future(_pump(reader, to_server)),
                    asyncio.ensure_future(_pump(from_server, writer)),
                ],
                return_when=asyncio.FIRST_COMPLETED,
            )
        finally:
            to_server.close()


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while data := await reader.read(CHUNK):
            writer.write(data)
            await writer.drain()


_PEM = serialization.Encoding.PEM


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey
) -> x509.CertificateBuilder:
    now = dt.datetime.now(dt.UTC)
    return (
        x509.CertificateBuilder(issuer, subject, key, x509.random_serial_number())
        .not_valid_before(now - dt.timedelta(days=1))
        .not_valid_after(now + dt.timedelta(days=1))
    )


def _general_name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)
