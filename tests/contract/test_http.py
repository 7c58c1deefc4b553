from __future__ import annotations

import asyncio
import dataclasses
import socket
import uuid
from typing import TYPE_CHECKING
from unittest import mock

import aiohttp
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from pgoutbox.brokers.http.publisher import HttpPublisher, open_http, problem_of
from pgoutbox.brokers.http.target import Target
from pgoutbox.errors import (
    DestinationGone,
    DestinationUnavailable,
    InvalidDestination,
    PermanentError,
    PublishError,
    RetryableError,
)
from pgoutbox.publisher import PublisherOptions
from pgoutbox.testing import SECRET, Arrivals, OpenAt, PublisherContract, make_message

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from pgoutbox.message import ClaimedMessage

OPTIONS = PublisherOptions(destination="hook", publish_timeout=4.0, concurrency=20)


LARGEST = 2**24
"""Bytes of a body that the receiver takes."""


class Receiver:
    """A working webhook receiver, or one that answers as told by the last part of the path."""

    def __init__(self) -> None:
        self.bodies: list[bytes] = []
        self.requests: list[web.Request] = []
        self.most_at_once = 0
        self._now = 0

    async def take(self, request: web.Request) -> web.StreamResponse:
        self._now += 1
        self.most_at_once = max(self.most_at_once, self._now)
        try:
            self.bodies.append(await request.read())
            self.requests.append(request)
        finally:
            self._now -= 1
        status = int(request.match_info.get("status", "200"))
        headers = {"Location": "/taken"} if 300 <= status < 400 else {"Set-Cookie": "a=1"}
        return web.Response(status=status, text="a secret of the receiver", headers=headers)


@pytest.fixture
async def receiver() -> AsyncIterator[tuple[Receiver, str]]:
    receiver = Receiver()
    app = web.Application(client_max_size=LARGEST)
    app.router.add_post("/taken", receiver.take)
    app.router.add_get("/taken", receiver.take)
    app.router.add_post("/status/{status}", receiver.take)
    server = TestServer(app)
    await server.start_server()
    yield receiver, str(server.make_url("/")).rstrip("/")
    await server.close()


@pytest.fixture
def nowhere() -> str:
    """A URL where nobody listens."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
    return f"http://127.0.0.1:{port}/"


class TestHttp(PublisherContract):
    @pytest.fixture
    async def publisher(self, receiver: tuple[Receiver, str]) -> AsyncIterator[HttpPublisher]:
        publisher = await open_http(f"{receiver[1]}/taken", options=OPTIONS)
        yield publisher
        await publisher.close()

    @pytest.fixture
    def arrivals(self, receiver: tuple[Receiver, str]) -> Arrivals:
        return lambda: receiver[0].bodies

    @pytest.fixture
    async def unreachable(self, nowhere: str) -> HttpPublisher:
        return await open_http(nowhere, options=OPTIONS)

    @pytest.fixture
    async def another(self, receiver: tuple[Receiver, str]) -> HttpPublisher:
        return await open_http(f"{receiver[1]}/taken", options=OPTIONS)

    @pytest.fixture
    def too_large(self) -> ClaimedMessage:
        return make_message(body=b"x" * (LARGEST + 1))

    @pytest.fixture
    async def unauthorized(self, receiver: tuple[Receiver, str]) -> HttpPublisher:
        url = f"{receiver[1]}/status/401".replace("http://", f"http://user:{SECRET}@")
        return await open_http(url, options=OPTIONS)

    @pytest.fixture
    async def missing(self, receiver: tuple[Receiver, str]) -> HttpPublisher:
        return await open_http(f"{receiver[1]}/status/404", options=OPTIONS)

    @pytest.fixture
    def open_at(self) -> OpenAt:
        options = dataclasses.replace(OPTIONS, publish_timeout=2.0)
        return lambda address: open_http(f"http://{address}/taken", options=options)

    @pytest.fixture
    def server(self, receiver: tuple[Receiver, str]) -> str:
        return receiver[1].removeprefix("http://")

    async def test_no_more_connections_than_the_concurrency_are_opened(
        self, publisher: HttpPublisher, receiver: tuple[Receiver, str]
    ) -> None:
        await asyncio.gather(*(publisher.publish(make_message()) for _ in range(100)))
        peers = {request.transport for request in receiver[0].requests}
        assert len(peers) <= OPTIONS.concurrency
        assert receiver[0].most_at_once <= OPTIONS.concurrency

    async def test_no_cookie_comes_back(
        self, publisher: HttpPublisher, receiver: tuple[Receiver, str]
    ) -> None:
        for _ in range(2):
            await publisher.publish(make_message())
        assert all("Cookie" not in request.headers for request in receiver[0].requests)


async def attempt(url: str) -> PublishError | None:
    publisher = await open_http(url, options=OPTIONS)
    try:
        await publisher.publish(make_message())
    except PublishError as error:
        return error
    finally:
        await publisher.close()
    return None


@pytest.mark.parametrize("status", [200, 201, 202, 204, 299])
async def test_any_2xx_takes_the_message(receiver: tuple[Receiver, str], status: int) -> None:
    assert await attempt(f"{receiver[1]}/status/{status}") is None


@pytest.mark.parametrize(
    "status",
    [401, 402, 403, 404, 405, 406, 407, 409, 411, 414, 415, 417, 421, 423, 426, 428, 451, 499],
)
async def test_a_4xx_that_may_be_about_the_endpoint_is_worth_a_retry(
    receiver: tuple[Receiver, str], status: int
) -> None:
    error = await attempt(f"{receiver[1]}/status/{status}")
    assert type(error) is RetryableError
    assert str(error).startswith(f"answered {status}")
    assert not error.throttled


@pytest.mark.parametrize("status", [408, 425, 500, 501, 502, 503, 504, 507, 599])
async def test_an_answer_that_may_change_is_retried(
    receiver: tuple[Receiver, str], status: int
) -> None:
    error = await attempt(f"{receiver[1]}/status/{status}")
    assert type(error) is RetryableError
    assert str(error).startswith(f"answered {status}")
    assert not error.throttled


async def test_429_asks_for_fewer_and_has_nothing_against_the_message(
    receiver: tuple[Receiver, str],
) -> None:
    error = await attempt(f"{receiver[1]}/status/429")
    assert type(error) is RetryableError
    assert error.throttled


@pytest.mark.parametrize("status", [400, 413, 422, 431])
async def test_a_4xx_about_the_message_is_permanent(
    receiver: tuple[Receiver, str], status: int
) -> None:
    error = await attempt(f"{receiver[1]}/status/{status}")
    assert type(error) is PermanentError
    assert str(error).startswith(f"answered {status}")


@pytest.mark.parametrize("status", [401, 403])
async def test_a_refused_password_comes_with_advice(
    receiver: tuple[Receiver, str], status: int
) -> None:
    error = await attempt(f"{receiver[1]}/status/{status}")
    assert "check the signing secrets, or the user and the password in the URL" in str(error)


async def test_410_says_that_nothing_is_wanted_there_any_more(
    receiver: tuple[Receiver, str],
) -> None:
    error = await attempt(f"{receiver[1]}/status/410")
    assert type(error) is DestinationGone
    assert str(error) == "answered 410 Gone"


async def test_410_of_one_url_among_many_is_no_word_about_the_others(
    receiver: tuple[Receiver, str],
) -> None:
    error = await attempt(f"{receiver[1]}/status/410?id={{aggregate_id}}")
    assert type(error) is PermanentError


@pytest.mark.parametrize("status", [300, 301, 302, 303, 304, 307, 308])
async def test_a_redirect_is_worth_a_retry_and_nobody_follows_it(
    receiver: tuple[Receiver, str], status: int
) -> None:
    error = await attempt(f"{receiver[1]}/status/{status}")
    assert type(error) is RetryableError
    assert "redirects are not followed; put the final URL into the settings" in str(error)
    assert [request.path for request in receiver[0].requests] == [f"/status/{status}"]


def test_a_redirect_of_a_host_that_the_message_chose_is_permanent() -> None:
    target = Target("https://{headers[to]}/hook", destination="hook")
    error = problem_of(302, {}, target)
    assert type(error) is PermanentError
    assert "redirects are not followed" in str(error)
    assert "settings" not in str(error)


def test_a_url_that_is_too_long_is_the_messages_own_where_it_made_it() -> None:
    target = Target("https://host.example/{aggregate_id}", destination="hook")
    assert type(problem_of(414, {}, target)) is PermanentError


@pytest.mark.parametrize("status", [101, 600, 999])
def test_a_status_that_means_nothing_is_worth_a_retry(status: int) -> None:
    error = problem_of(status, {}, Target("https://host.example/", destination="hook"))
    assert type(error) is RetryableError


async def test_the_receivers_words_are_never_repeated(receiver: tuple[Receiver, str]) -> None:
    for status in (404, 503, 302):
        error = await attempt(f"{receiver[1]}/status/{status}")
        assert "secret" not in str(error)
        assert len(str(error)) < 120


async def test_a_refused_connection_makes_the_destination_unavailable(nowhere: str) -> None:
    error = await attempt(nowhere)
    assert type(error) is DestinationUnavailable
    assert "no connection could be established" in str(error)


async def test_a_name_without_an_address_makes_the_destination_unavailable(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    unknown = socket.gaierror(socket.EAI_NONAME, "Name or service not known")
    monkeypatch.setattr(socket, "getaddrinfo", mock.Mock(side_effect=unknown))
    error = await attempt("http://name.invalid/")
    assert type(error) is DestinationUnavailable
    assert str(error) == "name.invalid:80: the host name has no address"


async def test_a_server_that_speaks_no_tls_makes_the_destination_unavailable(
    receiver: tuple[Receiver, str],
) -> None:
    error = await attempt(receiver[1].replace("http:", "https:"))
    assert type(error) is DestinationUnavailable
    assert "the TLS handshake failed" in str(error)


async def test_a_server_that_never_accepts_makes_the_destination_unavailable() -> None:
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen(0)
        address = listening.getsockname()
        waiting = []
        try:
            # Fill the backlog, so that the kernel leaves further connections unanswered.
            for _ in range(4):
                one = socket.socket()
                one.setblocking(False)  # noqa: FBT003
                one.connect_ex(address)
                waiting.append(one)
            options = PublisherOptions(destination="hook", publish_timeout=0.6)
            publisher = await open_http(f"http://127.0.0.1:{address[1]}/", options=options)
            async with asyncio.timeout(options.publish_timeout):
                with pytest.raises(DestinationUnavailable, match="connecting took too long"):
                    await publisher.publish(make_message())
            await publisher.close()
        finally:
            for one in waiting:
                one.close()


async def test_credentials_become_basic_authentication_and_appear_in_no_error(
    receiver: tuple[Receiver, str], nowhere: str
) -> None:
    where = receiver[1].replace("http://", "http://us%40er:p%C3%A4ss@")
    assert await attempt(f"{where}/taken?sig=t0ken") is None
    request = receiver[0].requests[0]
    sent = aiohttp.BasicAuth.decode(request.headers["Authorization"], encoding="utf-8")
    assert (sent.login, sent.password) == ("us@er", "päss")
    for url in (f"{where}/status/503", nowhere.replace("http://", "http://user:p%C3%A4ss@")):
        error = await attempt(url)
        assert error is not None
        assert "user" not in repr(error)
        assert "p%C3%A4ss" not in repr(error)
        assert error.__cause__ is None


async def test_a_message_cannot_replace_the_credentials_of_the_url(
    receiver: tuple[Receiver, str],
) -> None:
    url = receiver[1].replace("http://", "http://us:pw@") + "/taken"
    publisher = await open_http(url, options=OPTIONS)
    await publisher.publish(make_message(headers_json='{"authorization": "Bearer forged"}'))
    await publisher.close()
    assert receiver[0].requests[0].headers.getall("Authorization") == ["Basic dXM6cHc="]


async def test_path_and_query_are_sent_as_they_are_written(receiver: tuple[Receiver, str]) -> None:
    query = "sig=a%2Bb%2F%41&x=%7E~"
    assert await attempt(f"{receiver[1]}/taken?{query}#fragment") is None
    assert receiver[0].requests[0].raw_path == f"/taken?{query}"


async def test_proxies_of_the_environment_are_not_used(
    receiver: tuple[Receiver, str], nowhere: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTTP_PROXY", nowhere)
    monkeypatch.setenv("http_proxy", nowhere)
    assert await attempt(f"{receiver[1]}/taken") is None


@pytest.mark.parametrize(
    ("url", "problem"),
    [
        ("http://", "names no host"),
        ("http:///path", "names no host"),
        ("http://user:hunter2@", "names no host"),
        ("http://host:hunter2/", "host or port is not well-formed"),
        ("http://[::1/", "host or port is not well-formed"),
        ("http://host:99999/", "host or port is not well-formed"),
        ("http://a..b/", "host or port is not well-formed"),
        ("http://1.2.3/", "host or port is not well-formed"),
        ("http://host/two words?p=hunter2", "percent-encode them"),
        ("http://host/Zürich", "percent-encode them"),
        ("http://host/\r\nX: 1", "percent-encode them"),
    ],
)
async def test_a_url_that_cannot_be_requested_is_refused_at_start_without_repeating_it(
    url: str, problem: str
) -> None:
    with pytest.raises(InvalidDestination, match=problem) as caught:
        await open_http(url, options=OPTIONS)
    assert "hunter2" not in repr(caught.value)
    assert caught.value.__cause__ is None


async def test_every_message_carries_its_id_on_every_attempt(
    receiver: tuple[Receiver, str],
) -> None:
    identity = uuid.uuid4()
    publisher = await open_http(f"{receiver[1]}/taken", options=OPTIONS)
    for attempts in (1, 2):
        await publisher.publish(make_message(message_id=identity, attempts=attempts))
    await publisher.close()
    seen = [(r.headers["webhook-id"], r.headers["outbox-attempt"]) for r in receiver[0].requests]
    assert seen == [(str(identity), "1"), (str(identity), "2")]
