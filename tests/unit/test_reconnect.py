from __future__ import annotations

import asyncio
import logging
import time
from typing import TYPE_CHECKING

import pytest

from pgoutbox.brokers.reconnect import Reconnecting
from pgoutbox.errors import DestinationUnavailable

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    Connect = Callable[["Link | None"], Awaitable["Link"]]


class Link:
    """A connection of which a test sees what becomes of it."""

    def __init__(self) -> None:
        self.usable = True
        self.aborted = False
        self.closed = False
        self.ends = asyncio.Event()
        self.ends.set()
        self.raises: Exception | None = None

    def abort(self) -> None:
        self.aborted = True
        self.usable = False

    async def close(self) -> None:
        await self.ends.wait()
        self.closed = True
        self.usable = False
        if self.raises is not None:
            raise self.raises


def reconnecting(connect: Connect, patience: float = 5.0) -> Reconnecting[Link]:
    return Reconnecting(connect, where="a.example", patience=patience)


async def failure(links: Reconnecting[Link]) -> str:
    with pytest.raises(DestinationUnavailable) as caught:
        await links.get()
    return str(caught.value)


async def test_what_connecting_raises_is_told_and_not_tried_again_at_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    tries = 0

    async def connect(_: Link | None) -> Link:
        nonlocal tries
        tries += 1
        raise KeyError("a bug")

    links = reconnecting(connect)
    found = [await failure(links) for _ in range(20)]
    assert set(found) == {"a.example: connecting failed as nobody expected; see the log"}
    assert tries == 1
    (record,) = caplog.records
    assert record.levelno == logging.ERROR
    assert "in _open" in record.getMessage()
    await links.close()


async def test_so_is_a_client_that_cancels_itself() -> None:
    tries = 0

    async def connect(_: Link | None) -> Link:
        nonlocal tries
        tries += 1
        raise asyncio.CancelledError

    links = reconnecting(connect)
    found = [await failure(links) for _ in range(20)]
    assert set(found) == {"a.example: connecting was broken off"}
    assert tries == 1
    await links.close()


async def test_after_close_there_is_no_connection_and_none_is_opened() -> None:
    tries = 0

    async def connect(_: Link | None) -> Link:
        nonlocal tries
        tries += 1
        return Link()

    links = reconnecting(connect)
    link = await links.get()
    await links.close()
    assert link.closed
    # Even where its client does not notice.
    link.usable = True
    assert await failure(links) == "a.example: the publisher is closed"
    assert tries == 1
    await links.close()


async def test_a_connection_that_comes_about_after_close_is_closed() -> None:
    late = Link()
    begun = asyncio.Event()
    come_about = asyncio.Event()

    async def connect(_: Link | None) -> Link:
        begun.set()
        while True:
            try:
                await come_about.wait()
            except asyncio.CancelledError:
                continue
            return late

    links = reconnecting(connect)
    asked = asyncio.ensure_future(links.get())
    await begun.wait()
    closing = asyncio.ensure_future(links.close())
    # It swallows the cancellation of the close.
    for _ in range(5):
        await asyncio.sleep(0)
    come_about.set()
    await closing
    with pytest.raises(DestinationUnavailable, match="the publisher is closed"):
        await asked
    assert late.aborted
    assert await failure(links) == "a.example: the publisher is closed"
    await asyncio.gather(*links._leaving)
    assert late.closed


async def test_whoever_waits_for_a_connection_while_all_is_closed_hears_of_it_at_once() -> None:
    async def connect(_: Link | None) -> Link:
        await asyncio.Event().wait()
        raise AssertionError

    links = reconnecting(connect)
    asked = asyncio.ensure_future(links.get())
    await asyncio.sleep(0)
    await links.close()
    with pytest.raises(DestinationUnavailable, match="the publisher is closed"):
        await asked


async def test_close_ends_within_two_seconds_whatever_does_not_end() -> None:
    made: list[Link] = []

    async def connect(_: Link | None) -> Link:
        made.append(Link())
        made[-1].ends.clear()
        return made[-1]

    links = reconnecting(connect)
    for _ in range(3):
        links.drop(await links.get())
    await links.get()
    began = time.monotonic()
    await links.close()
    assert time.monotonic() - began < 2.0
    assert all(link.aborted for link in made)
    for link in made:
        link.ends.set()
    await asyncio.gather(*links._leaving)


async def test_a_connection_that_cannot_be_closed_is_no_business_of_whoever_closes(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def connect(_: Link | None) -> Link:
        return Link()

    links = reconnecting(connect)
    link = await links.get()
    link.raises = KeyError("a bug")
    await links.close()
    assert link.aborted
    assert "closing the connection failed" in caplog.text


async def test_a_lost_connection_is_replaced_and_given_to_whoever_makes_another() -> None:
    before: list[Link | None] = []

    async def connect(old: Link | None) -> Link:
        before.append(old)
        return Link()

    links = reconnecting(connect)
    first = await links.get()
    assert await links.get() is first
    first.usable = False
    second, third = await asyncio.gather(links.get(), links.get())
    assert second is third is not first
    assert before == [None, first]
    await links.close()
