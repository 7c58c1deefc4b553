"""What ``redis://`` and ``rediss://`` URLs may say, and what is said where TLS fails."""

from __future__ import annotations

import ssl
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from redis import exceptions as client

from pgoutbox.brokers.redis.answers import unconnected
from pgoutbox.brokers.redis.publisher import open_redis
from pgoutbox.errors import DestinationUnavailable, InvalidDestination
from pgoutbox.publisher import PublisherOptions
from pgoutbox.testing import make_message, publish_one
from tests.contract.raw_redis import raw_redis

if TYPE_CHECKING:
    from pathlib import Path

OPTIONS = PublisherOptions(destination="streams", publish_timeout=4.0)


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
    answer = unconnected(outer, "host:1", tls=True)
    assert type(answer) is DestinationUnavailable
    assert words in str(answer)
    # Without TLS it was something else.
    assert words not in str(unconnected(outer, "host:1", tls=False))


async def test_a_port_without_tls_is_told_from_a_server_that_is_slow() -> None:
    async with raw_redis() as server:
        # As a Redis server it waits for the end of a line, and a handshake has none.
        url = server.url.replace("redis:", "rediss:")
        publisher = await open_redis(url, options=replace(OPTIONS, publish_timeout=1.0))
        error = await publish_one(publisher, make_message())
        await publisher.close()
    assert type(error) is DestinationUnavailable
    assert "does this port speak TLS?" in str(error)


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
            error = await publish_one(publisher, make_message())
            await publisher.close()
            assert type(error) is DestinationUnavailable
            assert "certificate was not accepted" in str(error)


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
        ("rediss://host?ca_file=/nowhere/hunter2", "ca_file cannot be loaded"),
        ("rediss://host?key_file=/nowhere/hunter2", "key_file needs cert_file"),
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
    with pytest.raises(InvalidDestination, match="ca_file cannot be loaded"):
        await open_redis(url, options=OPTIONS)


async def test_ipv6_addresses_are_shown_in_brackets() -> None:
    publisher = await open_redis("redis://[::1]:1/", options=replace(OPTIONS, publish_timeout=1))
    error = await publish_one(publisher, make_message())
    await publisher.close()
    assert type(error) is DestinationUnavailable
    assert str(error).startswith("[::1]:1: ")
