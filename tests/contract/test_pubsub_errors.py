"""Every status that Pub/Sub may answer, every error of its client, and what close makes of them."""

from __future__ import annotations

import asyncio
import json
import logging
import socket
import threading
from dataclasses import replace
from importlib import import_module
from typing import TYPE_CHECKING, Any
from unittest import mock

import google.auth
import grpc
import pytest

from pgoutbox.brokers.pubsub.answers import CLIENT_ERRORS, UNSENT, answered
from pgoutbox.brokers.pubsub.client import CONNECT_ERRORS, REQUEST_ERRORS, Client
from pgoutbox.brokers.pubsub.publisher import (
    PubSubPublisher,
    open_pubsub,
)
from pgoutbox.errors import (
    DestinationUnavailable,
    PermanentError,
    PublishError,
    RetryableError,
)
from pgoutbox.publisher import PublisherOptions
from pgoutbox.testing import SECRET, make_message, publish_one
from tests.contract.pubsub_service import serving

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from pathlib import Path

    from pgoutbox.brokers.answers import Row
    from tests.contract.pubsub_service import Service

OPTIONS = PublisherOptions(destination="google", publish_timeout=4.0)
# These have few types.
AnonymousCredentials: Any = import_module("google.auth.credentials").AnonymousCredentials
DefaultCredentialsError: Any = import_module("google.auth.exceptions").DefaultCredentialsError


@pytest.fixture
async def service() -> AsyncIterator[Service]:
    async with serving() as service:
        yield service


@pytest.fixture
async def publisher(service: Service) -> AsyncIterator[PubSubPublisher]:
    publisher = await open_pubsub(service.url, options=OPTIONS)
    yield publisher
    await publisher.close()


@pytest.mark.parametrize("row", CLIENT_ERRORS, ids=lambda row: row[0])
async def test_every_status_has_its_row_and_the_services_words_are_not_repeated(
    publisher: PubSubPublisher,
    service: Service,
    row: tuple[str, Callable[[str], PublishError], str],
) -> None:
    status, meaning, words = row
    error = await publish_one(publisher, make_message(body=status.encode()))
    expected = meaning(f"127.0.0.1:{service.port}: {words}")
    assert (type(error), str(error)) == (type(expected), str(expected))
    assert getattr(error, "throttled", False) is (status == "RESOURCE_EXHAUSTED")
    # The client itself repeats nothing.
    assert service.requests == [[status.encode()]]


def test_there_is_a_row_for_every_status() -> None:
    assert {row[0] for row in CLIENT_ERRORS} == set(grpc.StatusCode.__members__) - {"OK"}


def test_what_grpc_could_not_send_costs_no_attempt() -> None:
    for beginning, words in UNSENT:
        error = answered("UNAVAILABLE", f"{beginning} with error: secret", "host")
        assert (type(error), str(error)) == (DestinationUnavailable, f"host: {words}")
    assert type(answered("UNAVAILABLE", "Socket closed", "host")) is RetryableError
    assert type(answered("", "", "host")) is RetryableError


async def test_a_message_that_is_not_valid_does_not_bury_its_neighbours(
    publisher: PubSubPublisher, service: Service
) -> None:
    bodies = [b"%d" % i for i in range(20)]
    bodies[3], bodies[17] = b"bad one", b"bad two"
    answers = await publisher.publish_batch([make_message(body=body) for body in bodies])
    bad = {3, 17}
    assert [type(answer) for answer in answers] == [
        PermanentError if place in bad else type(None) for place in range(20)
    ]
    assert sorted(body for body, _ in service.taken) == sorted(
        body for body in bodies if not body.startswith(b"bad")
    )


async def test_where_everything_is_refused_nothing_is_buried(
    publisher: PubSubPublisher, service: Service
) -> None:
    service.refusal = ("INVALID_ARGUMENT", "You have passed an invalid argument to the service")
    for size in (1, 5):
        answers = await publisher.publish_batch([make_message() for _ in range(size)])
        assert [isinstance(answer, RetryableError) for answer in answers] == [True] * size
        assert "look at project, topic and endpoint" in str(answers[0])


@pytest.mark.parametrize(
    "details",
    ["Received message larger than max (5 vs. 4)", "gRPC message exceeds maximum size 4: 5"],
)
async def test_a_request_that_the_server_finds_too_large_is_no_quota(
    publisher: PubSubPublisher, service: Service, details: str
) -> None:
    service.most = 1
    service.too_many = details
    answers = await publisher.publish_batch([make_message() for _ in range(5)])
    assert list(answers) == [None] * 5
    service.refusal = ("RESOURCE_EXHAUSTED", details)
    error = await publish_one(publisher, make_message())
    assert isinstance(error, RetryableError)
    assert not error.throttled
    assert "larger than the server takes" in str(error)


async def test_a_failed_request_fails_all_its_messages_and_no_key_is_paused(
    publisher: PubSubPublisher, service: Service
) -> None:
    keyed = [make_message(ordering_key=key, body=key.encode()) for key in ("a", "k")]
    failing = make_message(ordering_key="k", body=b"INTERNAL")
    assert [type(a) for a in await publisher.publish_batch([keyed[0], failing])] == [
        RetryableError,
        RetryableError,
    ]
    assert list(await publisher.publish_batch(keyed)) == [None, None]
    assert service.taken == [(b"a", "a"), (b"k", "k")]


async def test_an_answer_without_an_id_for_each_message_delivers_none(
    publisher: PubSubPublisher,
) -> None:
    for body in (b"short", b"nameless"):
        batch = [make_message(body=body), make_message()]
        answers = await publisher.publish_batch(batch)
        assert [type(answer) for answer in answers] == [RetryableError] * 2


async def test_too_long_a_header_fails_alone(publisher: PubSubPublisher) -> None:
    long = make_message(headers_json=json.dumps({"n": "x" * 1025}))
    first, error, last = await publisher.publish_batch([make_message(), long, make_message()])
    assert first is last is None
    assert type(error) is PermanentError


async def test_without_credentials_the_destination_is_unavailable_and_asked_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked = []

    def default(**_: Any) -> Any:
        asked.append(1)
        raise DefaultCredentialsError("words with a secret path")

    monkeypatch.setattr(google.auth, "default", default)
    publisher = await open_pubsub("pubsub://project/topic", options=OPTIONS)
    for _ in range(2):
        error = await publish_one(publisher, make_message())
        assert type(error) is DestinationUnavailable
        assert "GOOGLE_APPLICATION_CREDENTIALS" in str(error)
        assert "secret" not in str(error)
        assert error.__cause__ is None
    await publisher.close()
    assert len(asked) == 2


async def test_a_metadata_server_that_hangs_is_asked_once_and_holds_up_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    release, asked = threading.Event(), []

    def default(**_: Any) -> Any:
        asked.append(1)
        release.wait(30)
        raise DefaultCredentialsError("too late")

    monkeypatch.setattr(google.auth, "default", default)
    options = replace(OPTIONS, publish_timeout=0.3)
    publisher = await open_pubsub("pubsub://project/topic", options=options)
    for _ in range(3):
        error = await publish_one(publisher, make_message())
        assert type(error) is DestinationUnavailable
        assert "connecting took too long" in str(error)
    await publisher.close()
    release.set()
    assert len(asked) == 1


async def test_a_file_of_credentials_that_is_none_makes_the_destination_unavailable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(tmp_path / "hunter2.json"))
    publisher = await open_pubsub("pubsub://project/topic", options=OPTIONS)
    error = await publish_one(publisher, make_message())
    assert type(error) is DestinationUnavailable
    assert "no Google credentials" in str(error)
    assert "hunter2" not in str(error)
    await publisher.close()


async def test_a_regional_endpoint_is_reached_with_tls(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    credentials = AnonymousCredentials()
    monkeypatch.setattr(google.auth, "default", lambda **_: (credentials, None))
    url = f"pubsub://project/topic?endpoint=127.0.0.1:{service.port}"
    publisher = await open_pubsub(url, options=OPTIONS)
    # The stand-in speaks no TLS, so that nothing gets there in the clear.
    error = await publish_one(publisher, make_message())
    assert type(error) is DestinationUnavailable
    assert "no connection" in str(error)
    await publisher.close()
    assert service.requests == []


async def test_after_close_nothing_is_sent_and_nothing_opened(
    publisher: PubSubPublisher, service: Service
) -> None:
    assert await publish_one(publisher, make_message()) is None
    unused = await open_pubsub(service.url, options=OPTIONS)
    for each in (publisher, unused):
        await each.close()
        error = await publish_one(each, make_message())
        assert type(error) is DestinationUnavailable
        assert "the publisher is closed" in str(error)
    assert unused._client._channel is None
    assert len(service.requests) == 1


async def test_a_close_amid_a_request_ends_it_with_an_answer(
    publisher: PubSubPublisher, service: Service
) -> None:
    service.answering.clear()
    publishing = asyncio.ensure_future(publisher.publish_batch([make_message(), make_message()]))
    await service.asked.wait()
    await publisher.close()
    answers = await publishing
    assert [type(answer) for answer in answers] == [RetryableError] * 2
    assert "was closed before the answer" in str(answers[0])


async def test_a_close_amid_connecting_ends_it_with_an_answer() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"pubsub://project/topic?emulator=127.0.0.1:{silent.getsockname()[1]}"
        publisher = await open_pubsub(url, options=OPTIONS)
        publishing = asyncio.ensure_future(publish_one(publisher, make_message()))
        async with asyncio.timeout(10):
            while publisher._client._channel is None:  # noqa: ASYNC110 - nobody tells us
                await asyncio.sleep(0)
            await publisher.close()
            assert type(await publishing) is DestinationUnavailable


async def test_credentials_that_come_after_close_open_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    release, asked = threading.Event(), threading.Event()

    def default(**_: Any) -> Any:
        asked.set()
        release.wait(30)
        return AnonymousCredentials(), None

    monkeypatch.setattr(google.auth, "default", default)
    publisher = await open_pubsub("pubsub://project/topic", options=OPTIONS)
    publishing = asyncio.ensure_future(publish_one(publisher, make_message()))
    await asyncio.to_thread(asked.wait, 10)
    await publisher.close()
    release.set()
    error = await publishing
    assert type(error) is DestinationUnavailable
    assert "the publisher is closed" in str(error)
    assert publisher._client._channel is None


@pytest.mark.parametrize("row", CONNECT_ERRORS, ids=lambda row: row[0].__name__)
async def test_every_error_in_connecting_has_its_row(
    service: Service, row: Row, monkeypatch: pytest.MonkeyPatch
) -> None:
    kind, meaning, words = row

    async def fail(_: Client) -> None:
        raise kind(SECRET)

    monkeypatch.setattr(Client, "_ready", fail)
    publisher = await open_pubsub(service.url, options=OPTIONS)
    error = await publish_one(publisher, make_message())
    await publisher.close()
    assert (type(error), str(error)) == (meaning, f"127.0.0.1:{service.port}: {words}")


@pytest.mark.parametrize("row", REQUEST_ERRORS, ids=lambda row: row[0].__name__)
async def test_every_error_in_place_of_an_answer_has_its_row(
    publisher: PubSubPublisher, service: Service, row: Row, caplog: pytest.LogCaptureFixture
) -> None:
    kind, meaning, words = row

    async def fail(*_: Any, **__: Any) -> Any:
        raise kind(SECRET)

    assert await publish_one(publisher, make_message()) is None
    publisher._client._stub = mock.Mock(publish=fail)
    with caplog.at_level(logging.ERROR, "pgoutbox"):
        error = await publish_one(publisher, make_message())
    assert (type(error), str(error)) == (meaning, f"127.0.0.1:{service.port}: {words}")
    # A bug is told once, by its kind and its place.
    assert len(caplog.records) == (kind is Exception)
    assert SECRET not in caplog.text


async def test_a_cancellation_goes_on_also_amid_a_close(
    publisher: PubSubPublisher, service: Service
) -> None:
    service.answering.clear()
    publishing = asyncio.ensure_future(publisher.publish_batch([make_message()]))
    await service.asked.wait()
    publishing.cancel()
    await publisher.close()
    with pytest.raises(asyncio.CancelledError):
        await publishing
