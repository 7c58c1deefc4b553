"""A server that is away, comes back, or is silent; and how little a client may get in the way."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING, Any
from unittest import mock

import pytest
from botocore.loaders import JSONFileLoader

from pgoutbox.brokers.aws.client import _loader
from pgoutbox.brokers.sqs import open_sqs
from pgoutbox.errors import DestinationUnavailable, RetryableError
from pgoutbox.publisher import PublisherOptions
from pgoutbox.testing import make_message, publish_one
from tests.support.brokers.aws import REGION, Queue
from tests.support.brokers.ladder import split_address
from tests.support.tcp_proxy import TcpProxy

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from pgoutbox.brokers.aws.publisher import AwsPublisher

pytestmark = [pytest.mark.broker, pytest.mark.usefixtures("aws_credentials")]

OPTIONS = PublisherOptions(destination="queues", publish_timeout=10.0, concurrency=20)
IMPATIENT = PublisherOptions(destination="queues", publish_timeout=2.0, concurrency=20)


@pytest.fixture
def queue(sqs_url: str) -> Queue:
    return Queue(sqs_url)


@pytest.fixture
def proxy(sqs_url: str) -> Iterator[TcpProxy]:
    with TcpProxy(split_address(sqs_url.removeprefix("http://"))) as proxy:
        yield proxy


async def opened(queue: Queue, proxy: TcpProxy, options: PublisherOptions) -> AwsPublisher:
    url = f"sqs://{REGION}/{queue.name}?endpoint_url=http://127.0.0.1:{proxy.port}"
    return await open_sqs(url, options=options)


@pytest.fixture
async def publisher(queue: Queue, proxy: TcpProxy) -> AsyncIterator[AwsPublisher]:
    publisher = await opened(queue, proxy, OPTIONS)
    yield publisher
    await publisher.close()


@pytest.fixture
async def impatient(queue: Queue, proxy: TcpProxy) -> AsyncIterator[AwsPublisher]:
    publisher = await opened(queue, proxy, IMPATIENT)
    yield publisher
    await publisher.close()


async def test_a_server_that_is_down_at_first_is_used_once_it_is_up(
    publisher: AwsPublisher, proxy: TcpProxy, queue: Queue
) -> None:
    proxy.refuse()
    for _ in range(2):
        error = await publish_one(publisher, make_message())
        assert type(error) is DestinationUnavailable
    proxy.accept()
    assert await publish_one(publisher, make_message(body=b"now")) is None
    assert queue.bodies() == [b"now"]


async def test_nothing_is_lost_when_the_server_goes_and_comes_back(
    publisher: AwsPublisher, proxy: TcpProxy, queue: Queue
) -> None:
    waiting = {n: make_message(id=n, body=b"%d" % n) for n in range(30)}

    async def go_through() -> list[Any]:
        batch = list(waiting.values())[:10]
        answers = list(await publisher.publish_batch(batch))
        for message, answer in zip(batch, answers, strict=True):
            if answer is None:
                del waiting[message.id]
        return answers

    assert await go_through() == [None] * 10
    proxy.refuse()
    for _ in range(2):
        kinds = {type(answer) for answer in await go_through()}
        assert kinds <= {RetryableError, DestinationUnavailable}
    assert len(waiting) == 20
    proxy.accept()
    assert await go_through() + await go_through() == [None] * 20
    assert {int(body) for body in queue.bodies()} == set(range(30))


async def test_a_server_that_takes_requests_and_says_nothing_costs_an_attempt(
    impatient: AwsPublisher, proxy: TcpProxy
) -> None:
    assert await publish_one(impatient, make_message()) is None
    proxy.hold_answers()
    async with asyncio.timeout(IMPATIENT.publish_timeout):
        error = await publish_one(impatient, make_message())
    assert type(error) is RetryableError
    assert str(error).endswith(": no answer in time")
    proxy.thaw()
    assert await publish_one(impatient, make_message()) is None


async def test_a_server_that_never_says_anything_is_unavailable_in_half_of_the_time(
    impatient: AwsPublisher, proxy: TcpProxy
) -> None:
    proxy.freeze()
    async with asyncio.timeout(IMPATIENT.publish_timeout * 0.8):
        error = await publish_one(impatient, make_message())
    assert type(error) is DestinationUnavailable
    assert str(error).endswith("nothing was sent")


async def test_close_is_quick_while_the_server_hangs_and_ends_what_is_under_way(
    publisher: AwsPublisher, proxy: TcpProxy
) -> None:
    assert await publish_one(publisher, make_message()) is None
    proxy.hold_answers()
    before = proxy.connections
    under_way = asyncio.ensure_future(publish_one(publisher, make_message()))
    await asyncio.to_thread(proxy.until, lambda: proxy.connections > before, "no connection")
    async with asyncio.timeout(2.0):
        await publisher.close()
        await publisher.close()
        assert type(await under_way) is RetryableError


async def test_a_cancelled_publish_is_over_at_once_and_the_next_one_works(
    publisher: AwsPublisher, proxy: TcpProxy, queue: Queue
) -> None:
    assert await publish_one(publisher, make_message(body=b"1")) is None
    proxy.freeze(newcomers=True)
    before = proxy.connections
    under_way = asyncio.ensure_future(publish_one(publisher, make_message(body=b"2")))
    await asyncio.to_thread(proxy.until, lambda: proxy.connections > before, "no connection")
    under_way.cancel()
    done, _ = await asyncio.wait([under_way], timeout=1)
    assert done
    assert under_way.cancelled()
    proxy.cut()
    proxy.thaw()
    assert await publish_one(publisher, make_message(body=b"3")) is None
    # What had left us before may still arrive.
    assert {b"1", b"3"} <= set(queue.bodies()) <= {b"1", b"2", b"3"}


async def test_the_descriptions_of_services_are_read_beside_the_event_loop(
    publisher: AwsPublisher,
) -> None:
    readers: dict[str, int] = {}
    original = JSONFileLoader.load_file

    def load(self: JSONFileLoader, path: str) -> Any:
        if (found := original(self, path)) is not None:
            readers[path] = threading.get_ident()
        return found

    _loader.cache_clear()
    with mock.patch.object(JSONFileLoader, "load_file", load):
        assert await publish_one(publisher, make_message()) is None
    assert len(readers) >= 5
    assert [path for path, thread in readers.items() if thread == threading.get_ident()] == []
