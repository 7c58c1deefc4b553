"""Every row of the tables of errors, and URLs that are refused."""

from __future__ import annotations

import asyncio
import ssl
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from redis import exceptions as client

from pgoutbox.brokers.redis.answers import (
    CLIENT_ERRORS,
    CONNECT_ERRORS,
    ERROR_CODES,
    refused,
    unconnected,
)
from pgoutbox.brokers.redis.commands import command, xadd
from pgoutbox.brokers.redis.links import Link
from pgoutbox.brokers.redis.publisher import open_redis
from pgoutbox.errors import (
    DestinationUnavailable,
    InvalidDestination,
    PermanentError,
    PublishError,
    RetryableError,
)
from pgoutbox.publisher import PublisherOptions
from pgoutbox.testing import make_message
from pgoutbox.wire.envelope import Envelope
from tests.contract.raw_redis import ADDED, Command, RawRedis, raw_redis

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

OPTIONS = PublisherOptions(destination="streams", publish_timeout=4.0)

# What servers say, in their own words, and what becomes of the message.
SAID: list[tuple[bytes, type[PublishError], str]] = [
    (b"WRONGTYPE Operation against a key", RetryableError, "holds something else"),
    (b"OOM command not allowed when used memory > 'maxmemory'.", RetryableError, "memory is full"),
    (b"READONLY You can't write against a read only replica.", DestinationUnavailable, "replica"),
    (b"LOADING Redis is loading the dataset in memory", DestinationUnavailable, "still loading"),
    (b"BUSY Redis is busy running a script.", DestinationUnavailable, "busy with a script"),
    (b"MASTERDOWN Link with MASTER is down", DestinationUnavailable, "lost its primary"),
    (b"MISCONF Redis is configured to save RDB", DestinationUnavailable, "save to its disk"),
    (b"NOREPLICAS Not enough good replicas", DestinationUnavailable, "min-replicas-to-write"),
    (b"NOAUTH Authentication required.", DestinationUnavailable, "user or the password"),
    (b"NOPERM this user has no permissions", DestinationUnavailable, "give it XADD"),
    (b"MOVED 3999 127.0.0.1:6381", DestinationUnavailable, "part of a cluster"),
    (b"ASK 3999 127.0.0.1:6381", DestinationUnavailable, "part of a cluster"),
    (b"TRYAGAIN Multiple keys request", DestinationUnavailable, "is moving the stream"),
    (b"CROSSSLOT Keys in request", DestinationUnavailable, "part of a cluster"),
    (b"CLUSTERDOWN The cluster is down", DestinationUnavailable, "the cluster is down"),
    (b"ERR unknown command 'XADD'", DestinationUnavailable, "came with Redis 5"),
    (b"ERR Protocol error: invalid bulk length", PermanentError, "proto-max-bulk-len"),
    (b"ERR something else", RetryableError, "refused the message"),
    (b"NEWCODE something else", RetryableError, "refused the message"),
]


@pytest.fixture
async def server() -> AsyncIterator[RawRedis]:
    async with raw_redis() as server:
        yield server


@pytest.mark.parametrize(("said", "meaning", "words"), SAID, ids=lambda said: str(said)[:14])
async def test_an_error_in_place_of_an_answer_is_one_of_the_four(
    server: RawRedis, said: bytes, meaning: type[PublishError], words: str
) -> None:
    async def answer(_: Command) -> bytes:
        return b"-" + said + b"\r\n"

    server.answer = answer
    publisher = await open_redis(server.url, options=OPTIONS)
    batch = [make_message(), make_message()]
    answers = list(await publisher.publish_batch(batch))
    await publisher.close()
    assert [type(answer) for answer in answers] == [meaning, meaning]
    assert all(words in str(answer) for answer in answers)
    assert str(answers[0]).startswith(f"127.0.0.1:{server.port}: ")


async def test_an_error_concerns_only_its_own_message(server: RawRedis) -> None:
    replies = iter([ADDED, b"-OOM too much\r\n", ADDED])

    async def answer(_: Command) -> bytes:
        return next(replies)

    server.answer = answer
    publisher = await open_redis(server.url, options=OPTIONS)
    first, second, third = await publisher.publish_batch([make_message() for _ in range(3)])
    await publisher.close()
    assert first is third is None
    assert type(second) is RetryableError


async def test_what_was_answered_before_the_connection_ended_keeps_its_answer(
    server: RawRedis,
) -> None:
    replies = iter([ADDED, b"-OOM too much\r\n"])

    async def answer(_: Command) -> bytes | None:
        return next(replies, None)

    server.answer = answer
    publisher = await open_redis(server.url, options=OPTIONS)
    answers = list(await publisher.publish_batch([make_message() for _ in range(4)]))
    await publisher.close()
    assert [type(answer) for answer in answers] == [type(None), *[RetryableError] * 3]
    assert "ended before the answer" in str(answers[3])
    assert server.connections == 1
    assert len(server.commands) <= 4


async def test_after_a_failover_a_new_connection_is_made(server: RawRedis) -> None:
    async def answer(_: Command) -> bytes:
        return b"-READONLY a replica\r\n" if server.connections == 1 else ADDED

    server.answer = answer
    publisher = await open_redis(server.url, options=OPTIONS)
    [error] = await publisher.publish_batch([make_message()])
    assert type(error) is DestinationUnavailable
    assert list(await publisher.publish_batch([make_message()])) == [None]
    await publisher.close()
    assert server.connections == 2


@pytest.mark.parametrize(
    ("greeting", "words"),
    [
        (b"-NOAUTH Authentication required.\r\n", "user or the password"),
        (b"-WRONGPASS invalid username-password pair\r\n", "user or the password"),
        (b"-LOADING the dataset\r\n", "still loading"),
        (b"-ERR max number of clients reached\r\n", "no connection could be established"),
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "no Redis server"),
    ],
)
async def test_a_refused_handshake_costs_no_attempt(
    server: RawRedis, greeting: bytes, words: str
) -> None:
    server.greeting = greeting
    publisher = await open_redis(server.url.replace("//", "//me:pw@"), options=OPTIONS)
    with pytest.raises(DestinationUnavailable, match=words):
        await publisher.publish_batch([make_message()])
    await publisher.close()
    assert server.commands == []


def example(kind: type[Exception]) -> Exception:
    if issubclass(kind, client.AskError):
        return kind("3999 127.0.0.1:6381")
    return kind("words of the client")


@pytest.mark.parametrize("row", CLIENT_ERRORS, ids=lambda row: row[0].__name__)
async def test_every_error_of_the_client_has_its_row(
    server: RawRedis,
    row: tuple[type[Exception], type[PublishError], str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    kind, meaning, words = row

    async def fail(*_: object, **__: object) -> None:
        raise example(kind)

    publisher = await open_redis(server.url, options=OPTIONS)
    monkeypatch.setattr(Link, "read_response", fail)
    monkeypatch.setattr(Link, "open", no_handshake)
    answers = await publisher.publish_batch([make_message(), make_message()])
    await publisher.close()
    assert [(type(each), str(each)) for each in answers] == [
        (meaning, f"127.0.0.1:{server.port}: {words}")
    ] * 2


async def no_handshake(link: Link) -> None:
    link._reader, link._writer = await asyncio.open_connection(link.host, link.port)


@pytest.mark.parametrize("row", CONNECT_ERRORS, ids=lambda row: row[0].__name__)
async def test_every_error_in_connecting_has_its_row(
    row: tuple[type[Exception], type[PublishError], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    kind, meaning, words = row

    async def fail(_: Link) -> None:
        raise example(kind)

    monkeypatch.setattr(Link, "open", fail)
    publisher = await open_redis("redis://me:hunter2@host", options=OPTIONS)
    with pytest.raises(meaning) as caught:
        await publisher.publish_batch([make_message()])
    await publisher.close()
    assert str(caught.value) == f"host:6379: {words}"
    assert caught.value.__cause__ is None


def test_every_code_has_its_row() -> None:
    for code, meaning, words in ERROR_CODES:
        error = refused(client.ResponseError(f"{code} and more"), "host:1")
        assert (type(error), str(error)) == (meaning, f"host:1: {words}")


def test_what_is_no_error_of_the_client_is_not_hidden() -> None:
    with pytest.raises(ZeroDivisionError):
        refused(ZeroDivisionError(), "host:1")


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (ssl.SSLCertVerificationError("self-signed"), "certificate was not accepted"),
        (ssl.SSLError("wrong version"), "TLS handshake failed"),
    ],
)
def test_what_is_wrong_with_tls_is_said(error: Exception, words: str) -> None:
    outer = client.ConnectionError("the client's own words")
    outer.__context__ = error
    assert words in str(unconnected(outer, "host:1"))
    assert type(unconnected(outer, "host:1")) is DestinationUnavailable


async def test_a_server_without_tls_makes_a_tls_destination_unavailable(server: RawRedis) -> None:
    publisher = await open_redis(server.url.replace("redis:", "rediss:"), options=OPTIONS)
    with pytest.raises(DestinationUnavailable):
        await publisher.publish_batch([make_message()])
    await publisher.close()


async def test_without_word_of_the_replicas_nothing_is_delivered(server: RawRedis) -> None:
    said = iter([ADDED, b"-ERR not now\r\n", ADDED])

    async def answer(_: Command) -> bytes | None:
        return next(said, None)

    server.answer = answer
    publisher = await open_redis(f"{server.url}?wait=1", options=OPTIONS)
    for words in ("refused the message", "ended before the answer"):
        [error] = await publisher.publish_batch([make_message()])
        assert type(error) is RetryableError
        assert words in str(error)
    await publisher.close()
    assert [command[0] for command in server.commands] == [b"XADD", b"WAIT"] * 2


async def test_tls_is_checked_against_the_authority_that_the_url_names(tmp_path: Path) -> None:
    certificate, key = self_signed(tmp_path)
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    tls.load_cert_chain(certificate, key)
    async with raw_redis(tls) as server:
        url = server.url.replace("redis://127.0.0.1", "rediss://localhost")
        known = await open_redis(f"{url}?ca_file={certificate}", options=OPTIONS)
        assert list(await known.publish_batch([make_message()])) == [None]
        await known.close()
        other_name = url.replace("localhost", "127.0.0.1") + f"?ca_file={certificate}"
        for refused_url in (url, other_name):
            publisher = await open_redis(refused_url, options=OPTIONS)
            with pytest.raises(DestinationUnavailable, match="certificate was not accepted"):
                await publisher.publish_batch([make_message()])
            await publisher.close()


def self_signed(folder: Path) -> tuple[Path, Path]:
    """A certificate for ``localhost`` and its key, as files."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "localhost")])
    now = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - timedelta(hours=1))
        .not_valid_after(now + timedelta(hours=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False)
        .sign(key, hashes.SHA256())
    )
    files = folder / "cert.pem", folder / "key.pem"
    pem = serialization.Encoding.PEM
    files[0].write_bytes(certificate.public_bytes(pem))
    files[1].write_bytes(
        key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    return files


@pytest.mark.parametrize(
    ("url", "problem"),
    [
        ("redis://", "names no host"),
        ("redis:///0", "names no host"),
        ("redis://user:hunter2@/0", "names no host"),
        ("redis://host:hunter2/0", "host or port is not well-formed"),
        ("redis://[::1/0", "host or port is not well-formed"),
        ("redis://host:99999/0", "host or port is not well-formed"),
        ("redis://host/hunter2", "the database in the URL is not a whole number"),
        ("redis://host/1/2", "the database in the URL is not a whole number"),
        ("redis://host?maxlen=-1", "maxlen is not a whole number"),
        ("redis://host?maxlen=hunter2", "maxlen is not a whole number"),
        ("redis://host?maxlen=0", "maxlen=0 would keep nothing"),
        ("redis://host?wait=", "wait is not a whole number"),
        ("redis://host?max_bytes=1e6", "max_bytes is not a whole number"),
        ("redis://host?ca_file=/x", "'ca_file' is no option of redis://"),
        ("redis://host?stream=x", "'stream' is no option of redis://"),
        ("redis://host#hunter2", "write # as %23"),
        ("rediss://host?ca_file=/nowhere/hunter3", "cannot be read"),
    ],
)
async def test_a_url_that_makes_no_sense_is_refused_without_repeating_it(
    url: str, problem: str
) -> None:
    with pytest.raises(InvalidDestination, match=problem) as caught:
        await open_redis(url, options=OPTIONS)
    assert "hunter2@" not in repr(caught.value)
    assert "hunter2" not in str(caught.value)


async def test_a_file_that_holds_no_certificate_is_refused(tmp_path: Path) -> None:
    (tmp_path / "ca.pem").write_text("nothing of that kind")
    url = f"rediss://host?ca_file={tmp_path}/ca.pem"
    with pytest.raises(InvalidDestination, match="cannot be read"):
        await open_redis(url, options=OPTIONS)


async def test_ipv6_addresses_are_shown_in_brackets() -> None:
    publisher = await open_redis("redis://[::1]:1/", options=replace(OPTIONS, publish_timeout=1))
    with pytest.raises(DestinationUnavailable, match=r"\[::1\]:1: "):
        await publisher.publish_batch([make_message()])
    await publisher.close()


def test_commands_are_written_with_lengths_in_bytes() -> None:
    assert command("WAIT", "1", "250") == b"*3\r\n$4\r\nWAIT\r\n$1\r\n1\r\n$3\r\n250\r\n"
    assert command("é" * 3) == b"*1\r\n$6\r\n" + "ééé".encode() + b"\r\n"
    assert command("x" * 300) == b"*1\r\n$300\r\n" + b"x" * 300 + b"\r\n"
    assert command("\ud800") == b"*1\r\n$1\r\n?\r\n"
    envelope = Envelope("k", [("n", "v")], "t", b"b")
    assert xadd("s", ("MAXLEN", "~", "9"), envelope).split(b"\r\n")[::2] == [
        *(b"*14", b"XADD", b"s", b"MAXLEN", b"~", b"9", b"*"),
        *(b"content-type", b"t", b"key", b"k", b"h:n", b"v", b"body", b"b"),
    ]
