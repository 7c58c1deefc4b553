"""NATS that dies, hangs, lets nobody in, or is not who it says."""

from __future__ import annotations

import asyncio
import time
from functools import partial
from typing import TYPE_CHECKING

import pytest

from pgoutbox.brokers.nats.publisher import NatsPublisher, open_nats
from pgoutbox.errors import DestinationUnavailable, PublishError, RetryableError
from pgoutbox.publisher import PublisherOptions
from pgoutbox.testing import make_message
from pgoutbox.wire.template import Template
from tests.contract.tls_http import tls_contexts
from tests.support.brokers import publishing
from tests.support.brokers.ladder import free_port
from tests.support.brokers.nats import OwnServer, Place, own_nats, place
from tests.support.brokers.publishing import Traffic, closes_quickly, until
from tests.support.tcp_proxy import TcpProxy

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator
    from pathlib import Path

    from pgoutbox.message import ClaimedMessage

pytestmark = pytest.mark.broker

SECONDS = 1.0
answer = partial(publishing.answer, within=SECONDS)
until_taken = partial(publishing.until_taken, within=SECONDS)


@pytest.fixture(scope="module")
def server() -> Iterator[OwnServer]:
    with own_nats() as server:
        yield server


@pytest.fixture
async def stream(server: OwnServer) -> AsyncIterator[Place]:
    async with place(server.url) as found:
        yield found


@pytest.fixture
def proxy(server: OwnServer) -> Iterator[TcpProxy]:
    with TcpProxy(("127.0.0.1", server.port)) as proxy:
        yield proxy


def options(stream: Place | None = None) -> PublisherOptions:
    topic = Template("nowhere") if stream is None else Template(stream.subject("x"))
    return PublisherOptions(destination="nats", publish_timeout=SECONDS, topic=topic)


@pytest.fixture
async def proxied(proxy: TcpProxy, stream: Place) -> AsyncIterator[NatsPublisher]:
    publisher = await open_nats(f"nats://127.0.0.1:{proxy.port}", options=options(stream))
    yield publisher
    await publisher.close()


async def attempt(url: str, message: ClaimedMessage, stream: Place | None) -> PublishError | None:
    publisher = await open_nats(url, options=options(stream))
    try:
        return await answer(publisher, message)
    finally:
        await closes_quickly(publisher)


async def handed_over(publisher: NatsPublisher) -> None:
    links = publisher._links
    await until(lambda: links._link is not None and bool(links._link._pending), every=0)


async def test_nothing_that_was_acknowledged_is_lost_and_nothing_else_is_stored_by_an_outage() -> (
    None
):
    with own_nats() as server:
        async with place(server.url) as stream:
            publisher = await open_nats(server.url, options=options(stream))
            async with Traffic(publisher, within=SECONDS) as traffic:
                await traffic.more(200)
                server.kill()
                await traffic.fails()
                assert await answer(publisher, make_message(body=b"down")) is not None
                server.start()
                await traffic.more(200)
            stored = [received.body for received in stream.received()]
            await closes_quickly(publisher)
    assert {type(error) for error in traffic.failures} <= {RetryableError, DestinationUnavailable}
    # Each once, since its id is the same on every attempt; and nothing that was never acknowledged.
    assert sorted(stored) == sorted(traffic.taken)


async def test_a_server_that_is_down_at_the_start_is_used_once_it_is_there(
    proxy: TcpProxy, proxied: NatsPublisher, stream: Place
) -> None:
    proxy.down()
    for _ in range(3):
        error = await answer(proxied, make_message(body=b"down"))
        assert type(error) is DestinationUnavailable
        assert "no connection could be established" in str(error)
    proxy.up()
    await until_taken(proxied, make_message(body=b"up"))
    assert [received.body for received in stream.received()] == [b"up"]


async def test_a_lost_connection_is_made_again(
    proxy: TcpProxy, proxied: NatsPublisher, stream: Place
) -> None:
    assert await answer(proxied, make_message(body=b"before")) is None
    proxy.cut()
    await until_taken(proxied, make_message(body=b"after"))
    assert [received.body for received in stream.received()] == [b"before", b"after"]


async def test_while_a_connection_hangs_a_publish_ends_in_time_and_the_next_ones_spend_no_attempt(
    proxy: TcpProxy, proxied: NatsPublisher, stream: Place
) -> None:
    assert await answer(proxied, make_message(body=b"before")) is None
    proxy.freeze()
    hanging = make_message(body=b"hangs")
    error = await answer(proxied, hanging)
    assert type(error) is RetryableError
    assert "no acknowledgement in time" in str(error)
    error = await answer(proxied, make_message(body=b"refused"))
    assert type(error) is DestinationUnavailable
    assert "connecting took too long" in str(error)
    proxy.thaw()
    await until_taken(proxied, hanging)
    assert [received.body for received in stream.received()] == [b"before", b"hangs"]


async def test_a_message_whose_acknowledgement_is_lost_is_stored_once(
    proxy: TcpProxy, proxied: NatsPublisher, stream: Place
) -> None:
    assert await answer(proxied, make_message(body=b"before")) is None
    proxy.hold_answers()
    message = make_message(body=b"unheard")
    assert type(await answer(proxied, message)) is RetryableError
    assert len(stream.received()) == 2
    proxy.thaw()
    await until_taken(proxied, message._replace(attempts=2))
    assert [received.body for received in stream.received()] == [b"before", b"unheard"]


async def test_a_publish_is_cancelled_at_once_while_the_server_is_silent(
    proxy: TcpProxy, proxied: NatsPublisher
) -> None:
    assert await answer(proxied, make_message()) is None
    proxy.hold_answers()
    task = asyncio.ensure_future(proxied.publish_batch([make_message()]))
    await handed_over(proxied)
    task.cancel()
    done, _ = await asyncio.wait([task], timeout=0.5)
    assert done
    assert task.cancelled()
    proxy.thaw()
    await until_taken(proxied, make_message())


async def test_what_was_cancelled_before_it_was_sent_is_not_sent_later(
    proxy: TcpProxy, stream: Place
) -> None:
    url = f"nats://127.0.0.1:{proxy.port}"
    publisher = await open_nats(url, options=options(stream))
    assert await answer(publisher, make_message(body=b"before")) is None
    proxy.freeze()
    large = [make_message(body=b"%d" % i * 2**19) for i in range(30)]
    tasks = [asyncio.ensure_future(publisher.publish_batch([each])) for each in large]
    await handed_over(publisher)
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)
    proxy.thaw()
    await until_taken(publisher, make_message(body=b"after"))
    # What the network had already may arrive; most of it never left.
    arrived = [received.body for received in stream.received()]
    assert {b"before", b"after"} <= set(arrived)
    assert len(arrived) < len(large)
    await closes_quickly(publisher)


async def test_closing_is_quick_while_the_server_is_silent(
    proxy: TcpProxy, proxied: NatsPublisher
) -> None:
    assert await answer(proxied, make_message()) is None
    proxy.freeze()
    batch = [make_message(body=b"x" * 2**19) for _ in range(20)]
    task = asyncio.ensure_future(proxied.publish_batch(batch))
    await handed_over(proxied)
    await closes_quickly(proxied)
    answers = await task
    assert type(answers[0]) is RetryableError
    # The network takes some mebibytes; what is behind them never left.
    assert type(answers[-1]) is DestinationUnavailable


async def test_a_server_that_says_nothing_makes_the_destination_unavailable_in_half_the_time() -> (
    None
):
    async def say_nothing(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()

    server = await asyncio.start_server(say_nothing, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    publisher = await open_nats(f"nats://127.0.0.1:{port}", options=options())
    began = time.monotonic()
    found = await asyncio.gather(*(answer(publisher, make_message()) for _ in range(20)))
    assert SECONDS / 2 - 0.05 <= time.monotonic() - began < SECONDS
    assert {type(error) for error in found} == {DestinationUnavailable}
    assert {str(error) for error in found} == {f"127.0.0.1:{port}: connecting took too long"}
    await closes_quickly(publisher)
    server.close()
    await server.wait_closed()


async def test_of_several_servers_one_is_enough(stream: Place) -> None:
    url = f"nats://127.0.0.1:{free_port()},{stream.url.removeprefix('nats://')}"
    assert await attempt(url, make_message(body=b"here"), stream) is None
    assert [received.body for received in stream.received()] == [b"here"]


async def test_without_jetstream_a_message_is_retried() -> None:
    with own_nats('accounts { A { users: [{user: "u", password: "p"}] } }') as server:
        url = server.url.replace("nats://", "nats://u:p@")
        error = await attempt(url, make_message(), None)
    assert type(error) is RetryableError
    assert "no stream takes the subject" in str(error)


LIMITED = """
accounts { A { jetstream: enabled, users: [
  {user: "mute", password: "p%/", permissions: {publish: "other"}}
  {user: "deaf", password: "p%/", permissions: {subscribe: "other"}}
  {user: "own", password: "p%/", permissions: {publish: "nowhere", subscribe: "_INBOX.own.>"}}
] } }
"""


async def test_wrong_logins_and_missing_permissions_are_told_apart() -> None:
    told = {
        "stranger:wr0ng@": (DestinationUnavailable, "the user, password, token or credentials"),
        "mute:wr0ng@": (DestinationUnavailable, "the user, password, token or credentials"),
        "wr0ng@": (DestinationUnavailable, "the user, password, token or credentials"),
        "": (DestinationUnavailable, "the user, password, token or credentials"),
        "mute:p%25%2F@": (DestinationUnavailable, "may not publish to the subject"),
        "deaf:p%25%2F@": (DestinationUnavailable, "may not subscribe to its inbox"),
        "own:p%25%2F@": (DestinationUnavailable, "may not subscribe to its inbox"),
    }
    with own_nats(LIMITED) as server:
        for login, (meaning, text) in told.items():
            error = await attempt(
                server.url.replace("nats://", f"nats://{login}"), make_message(), None
            )
            assert type(error) is meaning, login
            assert text in str(error)
            assert "wr0ng" not in repr(error)
            assert error is not None
            assert error.__cause__ is None
        own = server.url.replace("nats://", "nats://own:p%25%2F@") + "?inbox_prefix=_INBOX.own"
        error = await attempt(own, make_message(), None)
        assert "no stream takes the subject" in str(error)


async def test_a_token_stands_where_the_user_does() -> None:
    with own_nats('authorization { token: "s3cret" }') as server:
        async with place(server.url.replace("nats://", "nats://s3cret@")) as stream:
            assert await attempt(stream.url, make_message(), stream) is None


async def test_over_tls_the_server_has_to_be_who_it_says_and_plain_text_is_no_way_out(
    tmp_path: Path, server: OwnServer
) -> None:
    plain = await attempt(f"{server.url}?tls=1", make_message(), None)
    assert type(plain) is DestinationUnavailable
    assert "offers no TLS" in str(plain)
    tls_contexts(tmp_path, "localhost")
    certificate = tmp_path / "server.pem"
    with own_nats(f'tls {{ cert_file: "{certificate}", key_file: "{certificate}" }}') as secure:
        url = f"nats://localhost:{secure.port}?tls=1"
        stranger = await attempt(url, make_message(), None)
        assert type(stranger) is DestinationUnavailable
        assert "its TLS certificate was not accepted" in str(stranger)
        known = await attempt(f"{url}&ca_file={certificate}", make_message(), None)
        assert "no stream takes the subject" in str(known)
