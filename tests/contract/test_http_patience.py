"""Many requests wait for their answers, and one timer ends those that wait too long."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING
from unittest import mock

import pytest

from pgoutbox.brokers.http.patience import Patience

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

SECONDS = 0.05


@pytest.fixture
async def patience() -> AsyncIterator[Patience]:
    patience = Patience(SECONDS)
    yield patience
    patience.close()


async def wait(patience: Patience, what: asyncio.Event) -> float:
    """How long it was waited for; raises TimeoutError where that was too long."""
    loop = asyncio.get_running_loop()
    began = loop.time()
    try:
        async with asyncio.timeout(None) as limit:
            patience.begin(limit)
            try:
                await what.wait()
            finally:
                patience.end(limit)
    except TimeoutError:
        assert loop.time() - began >= SECONDS
        raise
    return loop.time() - began


async def test_each_is_ended_when_its_own_time_is_up(patience: Patience) -> None:
    never, soon = asyncio.Event(), asyncio.Event()
    first = asyncio.create_task(wait(patience, never))
    answered = asyncio.create_task(wait(patience, soon))
    # Half of the first one's time: what is tested is time itself.
    await asyncio.sleep(SECONDS / 2)
    second = asyncio.create_task(wait(patience, never))
    soon.set()
    assert await answered < SECONDS
    for one in (first, second):
        with pytest.raises(TimeoutError):
            await one


async def test_after_a_quiet_time_it_ends_those_that_wait_again(patience: Patience) -> None:
    for _ in range(2):
        with pytest.raises(TimeoutError):
            await wait(patience, asyncio.Event())


async def test_a_cancellation_from_outside_stays_one(patience: Patience) -> None:
    waiting = asyncio.create_task(wait(patience, asyncio.Event()))
    await asyncio.sleep(0)  # until it has begun
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting


async def test_a_thousand_answers_cost_one_timer(patience: Patience) -> None:
    loop = asyncio.get_running_loop()
    answered = asyncio.Event()
    answered.set()
    with mock.patch.object(loop, "call_at", wraps=loop.call_at) as timers:
        for _ in range(1000):
            await wait(patience, answered)
    # More only where they took longer than one of them may.
    assert timers.call_count < 100
