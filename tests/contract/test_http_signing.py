"""Standard Webhooks: what a receiver verifies, and secrets that change."""

from __future__ import annotations

import re
import sys
import time
from base64 import b64decode, b64encode
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from standardwebhooks.webhooks import Webhook, WebhookVerificationError

from pgoutbox.brokers.http import signing as http_signing
from pgoutbox.brokers.http.publisher import open_http
from pgoutbox.brokers.http.signing import Signer
from pgoutbox.errors import DestinationUnavailable, InvalidDestination
from pgoutbox.publisher import PublisherOptions
from pgoutbox.testing import make_message
from pgoutbox.wire.cloudevents import CLOUDEVENTS_STRUCTURED
from pgoutbox.wire.plain import PLAIN
from tests.contract.raw_http import Exchange, RawServer, raw_server

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from pgoutbox.wire.envelope import WireFormat

PAGE = Path(__file__).parents[2] / "docs" / "http.md"


def hmac_secret(byte: bytes, size: int = 32) -> str:
    return "whsec_" + b64encode(byte * size).decode()


OLD, NEW = hmac_secret(b"\xfb"), hmac_secret(b"n")
SEED = bytes(range(32))
PRIVATE = Ed25519PrivateKey.from_private_bytes(SEED)
PUBLIC = PRIVATE.public_key().public_bytes_raw()
ED25519 = "whsk_" + b64encode(SEED).decode()


class Secrets:
    """Of a destination; they may be replaced, or not to be had."""

    def __init__(self, *now: str) -> None:
        self.now: Sequence[str] | Exception = now

    def __call__(self) -> Sequence[str]:
        if isinstance(self.now, Exception):
            raise self.now
        return self.now


@pytest.fixture
async def server() -> AsyncIterator[RawServer]:
    async with raw_server() as server:
        yield server


def headers_of(exchange: Exchange) -> dict[str, str]:
    pairs = (line.decode().split(": ", 1) for line in exchange.lines[1:])
    return {name.lower(): value for name, value in pairs}


async def post(server: RawServer, secrets: Secrets, wire: WireFormat = PLAIN) -> Exchange:
    options = PublisherOptions(destination="hook", signing_secrets=secrets, wire=wire)
    publisher = await open_http(server.url, options=options)
    await publisher.publish(make_message(body='{"name": "Zürich",  "n": 1.10}'.encode()))
    await publisher.close()
    return server.exchanges[-1]


@pytest.mark.parametrize("wire", [PLAIN, CLOUDEVENTS_STRUCTURED], ids=lambda wire: wire.name)
async def test_the_reference_verifier_accepts_what_arrives(
    server: RawServer, wire: WireFormat
) -> None:
    exchange = await post(server, Secrets(NEW), wire)
    Webhook(NEW).verify(exchange.body, headers_of(exchange))
    for body, secret in ((exchange.body + b" ", NEW), (exchange.body, OLD)):
        with pytest.raises(WebhookVerificationError):
            Webhook(secret).verify(body, headers_of(exchange))


async def test_a_payload_that_goes_out_in_pieces_is_signed_as_a_whole(server: RawServer) -> None:
    options = PublisherOptions(destination="hook", signing_secrets=Secrets(NEW))
    publisher = await open_http(server.url, options=options)
    await publisher.publish(make_message(body=b'"' + b"x" * 2**20 + b'"'))
    await publisher.close()
    Webhook(NEW).verify(server.exchanges[0].body, headers_of(server.exchanges[0]))


async def test_during_a_rotation_the_old_and_the_new_secret_both_verify(server: RawServer) -> None:
    exchange = await post(server, Secrets(NEW, OLD))
    headers = headers_of(exchange)
    for secret in (NEW, OLD):
        Webhook(secret).verify(exchange.body, headers)
    assert [one.partition(",")[0] for one in headers["webhook-signature"].split(" ")] == ["v1"] * 2


async def test_an_ed25519_signature_is_of_the_id_the_time_and_the_bytes(server: RawServer) -> None:
    with_public_half = "whsk_" + b64encode(SEED + PUBLIC).decode()
    for secret in (ED25519, with_public_half, ED25519.rstrip("=")):
        exchange = await post(server, Secrets(secret))
        headers = headers_of(exchange)
        scheme, _, signature = headers["webhook-signature"].partition(",")
        content = f"{headers['webhook-id']}.{headers['webhook-timestamp']}.".encode()
        PRIVATE.public_key().verify(b64decode(signature), content + exchange.body)
        assert scheme == "v1a"
        with pytest.raises(InvalidSignature):
            PRIVATE.public_key().verify(b64decode(signature), content + exchange.body + b" ")


async def test_both_kinds_of_secrets_sign_side_by_side(server: RawServer) -> None:
    exchange = await post(server, Secrets(ED25519, OLD))
    signatures = headers_of(exchange)["webhook-signature"].split(" ")
    assert [one.partition(",")[0] for one in signatures] == ["v1a", "v1"]
    Webhook(OLD).verify(exchange.body, headers_of(exchange))


async def test_a_destination_that_signs_nothing_sends_neither_time_nor_signature(
    server: RawServer,
) -> None:
    publisher = await open_http(server.url, options=PublisherOptions(destination="hook"))
    await publisher.publish(make_message())
    await publisher.close()
    assert server.exchanges[-1].values("webhook-id")
    assert not server.exchanges[-1].values("webhook-timestamp")
    assert not server.exchanges[-1].values("webhook-signature")


async def test_where_signing_was_asked_for_and_there_is_no_secret_nothing_is_opened() -> None:
    options = PublisherOptions(destination="hook", signing_secrets=Secrets())
    with pytest.raises(InvalidDestination, match="there is no signing secret"):
        await open_http("https://host.example/", options=options)


def test_every_attempt_is_signed_with_its_own_time(monkeypatch: pytest.MonkeyPatch) -> None:
    message, signer = make_message(), Signer(Secrets(NEW))
    signer.check("hook")
    stamps, signatures = set(), set()
    for now in (1_000.9, 90_000.0):
        monkeypatch.setattr(time, "time", lambda now=now: now)
        stamp, signature = signer.headers(message.message_id, message.body)
        stamps.add(stamp)
        signatures.add(signature)
    assert stamps == {("webhook-timestamp", "1000"), ("webhook-timestamp", "90000")}
    assert len(signatures) == 2


MALFORMED = {
    "no prefix": b64encode(b"hunter2" * 5).decode(),
    "another prefix": "whpk_" + b64encode(PUBLIC).decode(),
    "not base64": "whsec_hunter2-hunter2-hunter2-hunter2-hunter2",
    "not ascii": "whsec_hünter2",
    "a stray line end": NEW + "\n",
    "empty": "",
    "short": hmac_secret(b"s", 23),
    "long": hmac_secret(b"l", 65),
    "an ed25519 key of half its length": "whsk_" + b64encode(SEED[:16]).decode(),
    "an ed25519 key and a half": "whsk_" + b64encode(SEED + SEED[:16]).decode(),
    "two halves of different keys": "whsk_" + b64encode(SEED + SEED).decode(),
}


@pytest.mark.parametrize("secret", MALFORMED.values(), ids=MALFORMED.keys())
async def test_a_malformed_secret_is_refused_at_start_without_repeating_it(secret: str) -> None:
    options = PublisherOptions(destination="hook", signing_secrets=Secrets(NEW, secret))
    with pytest.raises(InvalidDestination, match="signing secret 2 of 2") as caught:
        await open_http("https://host.example/", options=options)
    assert not secret or secret.strip() not in repr(caught.value)
    assert caught.value.__cause__ is None
    assert caught.value.__suppress_context__


@pytest.mark.parametrize("size", [24, 64])
def test_the_shortest_and_the_longest_secret_are_taken(size: int) -> None:
    Signer(Secrets(hmac_secret(b"s", size))).check("hook")


def test_new_secrets_sign_from_the_next_message_on() -> None:
    message, secrets = make_message(), Secrets(OLD)
    signer = Signer(secrets)
    signer.check("hook")
    for now in ((NEW, OLD), (NEW,)):
        secrets.now = now
        (_, timestamp), (_, signature) = signer.headers(message.message_id, message.body)
        assert len(signature.split(" ")) == len(now)
        headers = {
            "webhook-id": str(message.message_id),
            "webhook-timestamp": timestamp,
            "webhook-signature": signature,
        }
        Webhook(NEW).verify(message.body, headers)


@pytest.mark.parametrize(
    "broken",
    [FileNotFoundError("gone"), ValueError("hunter2"), ("whsec_broken",), (NEW, "x"), ()],
    ids=["unreadable", "senseless", "malformed", "half malformed", "empty"],
)
def test_a_rotation_that_went_wrong_leaves_the_last_good_secrets_in_use(
    broken: Sequence[str] | Exception,
) -> None:
    message, secrets = make_message(), Secrets(OLD)
    signer = Signer(secrets)
    signer.check("hook")
    secrets.now = broken
    for _ in range(2):
        (_, timestamp), (_, signature) = signer.headers(message.message_id, message.body)
        headers = {"webhook-id": str(message.message_id), "webhook-timestamp": timestamp}
        Webhook(OLD).verify(message.body, {**headers, "webhook-signature": signature})
        assert len(signature.split(" ")) == 1
    secrets.now = (NEW, OLD)
    assert len(signer.headers(message.message_id, message.body)[1][1].split(" ")) == 2


async def test_without_any_good_secret_nothing_is_sent_until_there_is_one(
    server: RawServer,
) -> None:
    secrets = Secrets()
    secrets.now = FileNotFoundError("/run/secrets/hunter2")
    options = PublisherOptions(destination="hook", signing_secrets=secrets)
    publisher = await open_http(server.url, options=options)
    for now in (secrets.now, ("whsec_hunter2",), ()):
        secrets.now = now
        with pytest.raises(DestinationUnavailable, match="signing secrets cannot be read") as found:
            await publisher.publish(make_message())
        assert "hunter2" not in repr(found.value)
    assert server.exchanges == []
    secrets.now = (NEW,)
    await publisher.publish(make_message())
    await publisher.close()
    Webhook(NEW).verify(server.exchanges[0].body, headers_of(server.exchanges[0]))


def test_secrets_that_cannot_be_understood_at_start_are_refused() -> None:
    secrets = Secrets()
    secrets.now = ValueError("the file holds no secret")
    with pytest.raises(InvalidDestination, match="the file holds no secret"):
        Signer(secrets).check("hook")


@pytest.mark.parametrize("then", [(NEW, OLD), (NEW, "x")], ids=["good", "malformed"])
def test_secrets_are_parsed_when_they_change_and_not_for_every_message(
    monkeypatch: pytest.MonkeyPatch, then: tuple[str, ...]
) -> None:
    parsed = []

    def key_of(secret: str, name: str, parse: Any = http_signing.key_of) -> Any:
        parsed.append(secret)
        return parse(secret, name)

    monkeypatch.setattr(http_signing, "key_of", key_of)
    message, secrets = make_message(), Secrets(OLD)
    signer = Signer(secrets)
    signer.check("hook")
    for now in ((OLD,), then):
        secrets.now = now
        for _ in range(3):
            secrets.now = tuple(now)
            signer.headers(message.message_id, message.body)
    assert parsed == [OLD, *then]


def test_without_the_package_for_ed25519_its_keys_are_refused_with_advice(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "cryptography.hazmat.primitives.asymmetric.ed25519", None)
    Signer(Secrets(NEW)).check("hook")
    with pytest.raises(InvalidDestination, match=r"install pgoutbox\[http\]"):
        Signer(Secrets(ED25519)).check("hook")


async def test_the_documented_verification_accepts_what_is_sent(server: RawServer) -> None:
    blocks = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(), re.DOTALL | re.MULTILINE)
    (example,) = [block for block in blocks if "def verified" in block]
    namespace: dict[str, Any] = {}
    exec(example, namespace)  # noqa: S102 - our own documentation
    verified = namespace["verified"]
    exchange = await post(server, Secrets(ED25519, NEW))
    whpk = "whpk_" + b64encode(PUBLIC).decode()
    assert verified(headers_of(exchange), exchange.body, whpk)
    assert not verified(headers_of(exchange), exchange.body + b" ", whpk)
    late = headers_of(exchange) | {"webhook-timestamp": str(int(time.time()) - 3600)}
    assert not verified(late, exchange.body, whpk)
