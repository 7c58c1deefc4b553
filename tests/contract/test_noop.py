from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from pgoutbox.brokers.noop import open_noop
from pgoutbox.errors import InvalidDestination
from pgoutbox.publisher import BatchPublisher, PublisherOptions
from pgoutbox.testing import AnyPublisher, PublisherContract, make_message

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

OPTIONS = PublisherOptions(destination="trial")


class TestNoop(PublisherContract):
    @pytest.fixture(params=["noop://", "noop://?batch=1", "noop://?delay_ms=1"])
    async def publisher(self, request: pytest.FixtureRequest) -> AsyncIterator[AnyPublisher]:
        publisher = await open_noop(request.param, options=OPTIONS)
        yield publisher
        await publisher.close()

    @pytest.fixture
    async def another(self) -> AnyPublisher:
        return await open_noop("noop://", options=OPTIONS)


async def test_only_batch_1_takes_batches() -> None:
    assert not isinstance(await open_noop("noop://", options=OPTIONS), BatchPublisher)
    assert not isinstance(await open_noop("noop://?batch=0", options=OPTIONS), BatchPublisher)
    assert isinstance(await open_noop("noop://?batch=1", options=OPTIONS), BatchPublisher)


async def test_a_delay_lasts_at_least_as_long_as_it_says() -> None:
    publisher = await open_noop("noop://?delay_ms=30", options=OPTIONS)
    assert not isinstance(publisher, BatchPublisher)
    loop = asyncio.get_running_loop()
    started = loop.time()
    await publisher.publish(make_message())
    assert loop.time() - started >= 0.029


@pytest.mark.parametrize(
    ("url", "problem"),
    [
        ("noop://?bath=1", "'bath' is no option of noop://; known are batch, delay_ms"),
        ("noop://?batch=1&batch=1", "the option 'batch' is given twice"),
        ("noop://?batch=maybe", "batch=maybe is neither 1 nor 0"),
        ("noop://?batch=", "batch= is neither 1 nor 0"),
        ("noop://?delay_ms=-5", "delay_ms=-5 is not a whole number of milliseconds"),
        ("noop://?delay_ms=1e9", "delay_ms=1e9 is not a whole number of milliseconds"),
        ("noop://?delay_ms=", "delay_ms= is not a whole number of milliseconds"),
    ],
)
async def test_an_option_that_makes_no_sense_is_refused_by_name(url: str, problem: str) -> None:
    with pytest.raises(InvalidDestination) as caught:
        await open_noop(url, options=OPTIONS)
    assert str(caught.value) == f"destination 'trial': {problem}"
