"""Every status that Pub/Sub may answer, credentials, limits, and URLs that are refused."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from dataclasses import replace
from importlib import import_module
from typing import TYPE_CHECKING, Any

import google.auth
import grpc
import pytest

from pgoutbox.brokers.pubsub.answers import CLIENT_ERRORS, UNSENT, answered
from pgoutbox.brokers.pubsub.publisher import (
    Prepared,
    PubSubPublisher,
    _requests,
    check_limits,
    open_pubsub,
)
from pgoutbox.errors import (
    DestinationUnavailable,
    InvalidDestination,
    PermanentError,
    PublishError,
    RetryableError,
)
from pgoutbox.publisher import PublisherOptions
from pgoutbox.testing import make_message, publish_one
from pgoutbox.wire.template import Template
from tests.contract.pubsub_service import serving

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence
    from pathlib import Path

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
    publisher: PubSubPublisher, service: Service, row: tuple[str, type[PublishError], str]
) -> None:
    status, meaning, words = row
    error = await publish_one(publisher, make_message(body=status.encode()))
    assert (type(error), str(error)) == (meaning, f"127.0.0.1:{service.port}: {words}")
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
    error = await publish_one(publisher, make_message(body=b"short"))
    assert type(error) is RetryableError


def sizes(prepared: Sequence[Prepared], most: int) -> list[int]:
    return [len(part) for part in _requests(prepared, most)]


def test_requests_are_split_by_count_and_by_bytes() -> None:
    assert sizes([Prepared(i, None, 10) for i in range(2500)], 10**7) == [1000, 1000, 500]
    assert sizes([Prepared(i, None, 4) for i in range(5)], 10) == [2, 2, 1]
    assert sizes([Prepared(0, None, 4)], 10) == [1]
    assert sizes([Prepared(i, None, 10) for i in range(3)], 10) == [1, 1, 1]


@pytest.mark.parametrize(
    ("headers", "key", "words"),
    [
        ({str(i): "" for i in range(101)}, "", "101 attributes"),
        ({"n" * 257: ""}, "", "more than 256 bytes"),
        ({"é" * 129: ""}, "", "more than 256 bytes"),
        ({"googclient": ""}, "", "begins with goog"),
        ({"": "x"}, "", "name is empty"),
        ({"n": "é" * 513}, "", "'n' has more than 1024 bytes"),
        ({}, "k" * 1025, "ordering key has more than 1024 bytes"),
    ],
)
def test_what_does_not_fit_is_refused_with_words(
    headers: dict[str, str], key: str, words: str
) -> None:
    with pytest.raises(PermanentError, match=words):
        check_limits(headers, key)


def test_what_just_fits_is_taken() -> None:
    full = {str(i): "" for i in range(98)} | {"n" * 256: "", "v": "é" * 512}
    check_limits(full, "é" * 512)


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
        with pytest.raises(
            DestinationUnavailable, match="GOOGLE_APPLICATION_CREDENTIALS"
        ) as caught:
            await publisher.publish_batch([make_message()])
        assert "secret" not in str(caught.value)
        assert caught.value.__cause__ is None
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
        with pytest.raises(DestinationUnavailable, match="connecting took too long"):
            await publisher.publish_batch([make_message()])
    await publisher.close()
    release.set()
    assert len(asked) == 1


async def test_a_file_of_credentials_that_is_none_makes_the_destination_unavailable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(tmp_path / "hunter2.json"))
    publisher = await open_pubsub("pubsub://project/topic", options=OPTIONS)
    with pytest.raises(DestinationUnavailable, match="no Google credentials") as caught:
        await publisher.publish_batch([make_message()])
    assert "hunter2" not in str(caught.value)
    await publisher.close()


async def test_a_regional_endpoint_is_reached_with_tls(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    credentials = AnonymousCredentials()
    monkeypatch.setattr(google.auth, "default", lambda **_: (credentials, None))
    url = f"pubsub://project/topic?endpoint=127.0.0.1:{service.port}"
    publisher = await open_pubsub(url, options=OPTIONS)
    # The stand-in speaks no TLS, so that nothing gets there in the clear.
    with pytest.raises(DestinationUnavailable, match="no connection"):
        await publisher.publish_batch([make_message()])
    await publisher.close()
    assert service.requests == []


async def test_after_close_nothing_is_sent(publisher: PubSubPublisher, service: Service) -> None:
    assert await publish_one(publisher, make_message()) is None
    await publisher.close()
    assert type(await publish_one(publisher, make_message())) is DestinationUnavailable
    assert len(service.requests) == 1


@pytest.mark.parametrize(
    ("url", "problem"),
    [
        ("pubsub://", "names a project"),
        ("pubsub:///topic", "names a project"),
        ("pubsub://user:hunter2@project/topic", "names a project"),
        ("pubsub://project/topic#hunter2", "names a project"),
        ("pubsub://[::1/topic", "names a project"),
        ("pubsub://project/ab", "not one that Pub/Sub can have"),
        ("pubsub://project/9lives", "not one that Pub/Sub can have"),
        ("pubsub://project/google-topic", "not one that Pub/Sub can have"),
        ("pubsub://project/two/parts", "not one that Pub/Sub can have"),
        ("pubsub://project/{hunter}", "knows no field {hunter}"),
        ("pubsub://project/topic?emulator=", "emulator is not a host"),
        ("pubsub://project/topic?endpoint=https://host", "endpoint is not a host"),
        ("pubsub://project/topic?emulator=a:1&endpoint=b:2", "exclude each other"),
        ("pubsub://project/topic?batch=1", "'batch' is no option"),
    ],
)
async def test_a_url_that_makes_no_sense_is_refused_without_repeating_it(
    url: str, problem: str
) -> None:
    with pytest.raises(InvalidDestination, match=problem) as caught:
        await open_pubsub(url, options=OPTIONS)
    assert "hunter2" not in str(caught.value)


async def test_a_topic_both_in_the_url_and_in_the_settings_is_refused() -> None:
    options = replace(OPTIONS, topic=Template("other"))
    with pytest.raises(InvalidDestination, match="in the URL and in the settings"):
        await open_pubsub("pubsub://project/topic", options=options)


def test_googles_library_is_imported_when_the_first_url_is_opened_and_not_before() -> None:
    code = "import sys, pgoutbox.brokers.pubsub; sys.exit('google.pubsub_v1' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
