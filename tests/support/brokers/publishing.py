"""A batch publisher, and a server that comes and goes."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

from pgoutbox.errors import PublishError
from pgoutbox.testing import make_message

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType
    from typing import Self

    from pgoutbox.message import ClaimedMessage
    from pgoutbox.publisher import BatchPublisher

PATIENCE = 20.0
LANES = 10


async def answer(
    publisher: BatchPublisher, message: ClaimedMessage, *, within: float
) -> PublishError | None:
    """What became of it, which must be known after so many seconds, as after a publish timeout."""
    try:
        async with asyncio.timeout(within):
            (found,) = await publisher.publish_batch([message])
    except PublishError as error:
        return error
    return found


async def until(condition: Callable[[], bool], *, every: float = 0.01) -> None:
    """Look every so many seconds, where nobody tells when it is so."""
    async with asyncio.timeout(PATIENCE):
        while not condition():  # noqa: ASYNC110 - as said
            await asyncio.sleep(every)


async def until_taken(publisher: BatchPublisher, message: ClaimedMessage, *, within: float) -> None:
    """Try again and again, as a worker does."""
    async with asyncio.timeout(PATIENCE):
        while await answer(publisher, message, within=within) is not None:  # noqa: ASYNC110 - the next attempt's time
            await asyncio.sleep(0.02)


async def closes_quickly(publisher: BatchPublisher) -> None:
    """Whatever its server does; twice, as may happen."""
    began = time.monotonic()
    await publisher.close()
    await publisher.close()
    assert time.monotonic() - began < 2.0


class Traffic:
    """Lanes that publish one message after the other, each until it is taken."""

    def __init__(self, publisher: BatchPublisher, *, within: float) -> None:
        self._publisher = publisher
        self._within = within
        self._lanes = asyncio.TaskGroup()
        self._ended = False
        self.taken: list[bytes] = []
        self.failures: list[PublishError] = []

    async def __aenter__(self) -> Self:
        """Begin."""
        await self._lanes.__aenter__()
        for lane in range(LANES):
            self._lanes.create_task(self._publish(lane))
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Let each end with the message that it is at."""
        self._ended = True
        await self._lanes.__aexit__(kind, error, trace)

    async def more(self, count: int) -> None:
        """Return once so many more have been taken."""
        wanted = len(self.taken) + count
        await until(lambda: len(self.taken) >= wanted)

    async def fails(self) -> None:
        """Return once something has failed."""
        await until(lambda: bool(self.failures))

    async def _publish(self, lane: int) -> None:
        number = 0
        while not self._ended:
            message = make_message(body=b"%d/%d" % (lane, number))
            while error := await answer(self._publisher, message, within=self._within):
                self.failures.append(error)
                await asyncio.sleep(0.02)  # until the next attempt
            self.taken.append(message.body)
            number += 1
